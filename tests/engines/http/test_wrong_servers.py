"""Further wrong servers: each fails a case over HTTP alone. One that no case finds has no entry."""

from __future__ import annotations

from pathlib import Path

import pytest
import wrong_answers
import wrong_samples
import wrong_sampling
import wrong_state
import wrong_streams
import wrong_texts
from own_server import OwnServer
from test_judging import WRONG, outcomes_of

CAUGHT: list[tuple[type[OwnServer], str]] = [
    (wrong_streams.LastPieceLost, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.TokenLostAtTheBorder, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.PieceTwice, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.BytesCut, "served_answers:SRV-5:form=characters"),
    (wrong_streams.NoReasonInStreams, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.ReasonTooEarly, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.FirstLogprobOfPiece, "served_answers:SRV-5:form=logprobs"),
    (wrong_streams.PiecesCounted, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.NoEndMark, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.SamplesSwapped, "served_answers:SRV-5:form=samples"),
    (wrong_streams.StopBegun, "served_answers:SRV-5:form=stop"),
    (wrong_streams.StreamsDrawAnew, "served_answers:SRV-5:form=sampled"),
    (wrong_streams.StreamsLogprobsLate, "served_answers:SRV-5:form=logprobs"),
    (wrong_streams.ErrorInStream, "served_answers:SRV-5:form=greedy"),
    (wrong_streams.StreamsAbove16, "served_load:SRV-10:stream=no"),
    (wrong_texts.DraftsBeyondTheLimit, "served_text:SRV-3:max_tokens=2"),
    (wrong_texts.LastStepOmitted, "served_text:SRV-3:max_tokens=7"),
    (wrong_texts.AlwaysStop, "served_text:SRV-3:max_tokens=1"),
    (wrong_texts.AlwaysLength, "served_text:SRV-4:stop=strings"),
    (wrong_texts.StopAtTheLimit, "served_text:SRV-3:max_tokens=7"),
    (wrong_texts.DraftsCounted, "served_text:SRV-3:max_tokens=7"),
    (wrong_texts.StepsCounted, "served_text:SRV-3:max_tokens=7"),
    (wrong_texts.TotalWrong, "served_text:SRV-3:max_tokens=7"),
    (wrong_texts.PromptCountedTwice, "served_text:SRV-3:samples=four"),
    (wrong_texts.StoppedUsage, "served_text:SRV-4:stop=tokens"),
    (wrong_texts.Echo, "served_text:SRV-4:stop=strings"),
    (wrong_texts.SpaceLost, "served_answers:SRV-13:form=greedy"),
    (wrong_texts.WrongText, "served_answers:SRV-13:form=greedy"),
    (wrong_texts.EndInText, "served_text:SRV-4:stop=end of text"),
    (wrong_texts.TokensAfterStop, "served_text:SRV-4:stop=tokens"),
    (wrong_texts.StopWithinStep, "served_text:SRV-4:stop=strings"),
    (wrong_texts.FirstListedStop, "served_text:SRV-4:stop=several"),
    (wrong_texts.OneStopOnly, "served_text:SRV-4:stop=several"),
    (wrong_texts.StopInPrompt, "served_text:SRV-4:stop=strings"),
    (wrong_texts.StopKept, "served_text:SRV-4:stop=strings"),
    (wrong_texts.EndIgnored, "served_text:SRV-4:stop=end of text"),
    (wrong_texts.EndAlways, "served_text:SRV-4:stop=end of text ignored"),
    (wrong_texts.MinTokensIgnored, "served_text:SRV-4:stop=min_tokens"),
    (wrong_texts.MinTokensOfSteps, "served_text:SRV-4:stop=min_tokens"),
    (wrong_answers.AcceptedLogprobsZero, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.AcceptedLogprobsMissing, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.LogprobsShiftedInSteps, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.LogprobsLateAtStop, "served_answers:SRV-6:stop=strings"),
    (wrong_answers.NoLogprobsAtStop, "served_answers:SRV-6:stop=strings"),
    (wrong_answers.BestLeftOut, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.LogprobsTempered, "served_answers:SRV-6:sampling=sampled"),
    (wrong_answers.NoLogprobsForZero, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.PromptLogprobsShifted, "served_answers:SRV-6:sampling=prompt"),
    (wrong_answers.SamplesCopied, "served_answers:SRV-8:sampling=drawn"),
    (wrong_answers.OneSampleShort, "served_answers:SRV-8:sampling=drawn"),
    (wrong_answers.BiasOfTheNext, "served_text:SRV-9:penalty=logit bias"),
    (wrong_answers.BiasBounded, "served_text:SRV-9:penalty=logit bias"),
    (wrong_answers.SeedZeroIgnored, "served_answers:SRV-7:others=none"),
    (wrong_answers.OneSeedForAll, "served_answers:SRV-7:others=no seed"),
    (wrong_answers.SeedOfPlace, "served_answers:SRV-7:others=31"),
    (wrong_answers.SeedOfNeighbour, "served_answers:SRV-7:others=31"),
    (wrong_answers.CachedByBeginning, "served_text:SRV-1:prompts=one beginning"),
    (wrong_answers.AnswersKept, "served_answers:SRV-7:others=no seed"),
    (wrong_answers.SwappedAbove16, "served_load:SRV-10:stream=no"),
    (wrong_answers.LogprobsOfNeighbour, "served_answers:SRV-6:sampling=greedy"),
    (wrong_answers.PenaltyOfNeighbour, "served_load:SRV-10:stream=no"),
    (wrong_answers.LimitsOfNeighbour, "served_text:SRV-2:style=unlike"),
    (wrong_answers.CutBesideCancelled, "served_load:SRV-11:clients=leave"),
    (wrong_answers.MinPIgnored, "served_text:SRV-2:style=unlike"),
    (wrong_answers.ErrorOnText, "served_load:SRV-12:body=max_tokens as text"),
    (wrong_answers.BadSeedFails, "served_load:SRV-12:body=seed as text"),
    (wrong_answers.BadBiasFails, "served_load:SRV-12:body=logit_bias as list"),
    (wrong_answers.NoReason, "served_load:SRV-12:body=no JSON"),
    (wrong_answers.DeadAfterBad, "served_load:SRV-12:body=no JSON"),
    (wrong_answers.LongPromptCut, "served_load:SRV-12:body=prompt beyond the limit"),
    (wrong_answers.UnknownTokensTaken, "served_load:SRV-12:body=prompt of unknown tokens"),
    (wrong_sampling.LimitsIgnoredWithDrafts, "served_text:SRV-2:style=top_k 5"),
    (wrong_sampling.TopPIgnoredWithDrafts, "served_text:SRV-2:style=top_p 0.8"),
    (wrong_sampling.MinPIgnoredWithDrafts, "served_text:SRV-2:style=unlike"),
    (wrong_sampling.TemperatureIgnoredWithDrafts, "served_text:SRV-2:style=temperature 0.5"),
    (wrong_sampling.TopPBeforeTemperature, "served_text:SRV-2:style=unlike"),
    (wrong_sampling.RecoveredGreedy, "served_text:SRV-2:style=three tokens"),
    (wrong_sampling.RecoveredFromTarget, "served_text:SRV-2:style=three tokens"),
    (wrong_sampling.Typical, "served_text:SRV-2:style=three tokens"),
    (wrong_sampling.GreedyAcceptance, "served_text:SRV-1:prompts=texts"),
    (wrong_sampling.PenaltiesWithoutDrafts, "served_text:SRV-9:penalty=frequency"),
    (wrong_sampling.PenaltiesOfAllDrafts, "served_text:SRV-9:penalty=presence"),
    (wrong_sampling.PenaltiesOfPrompt, "served_text:SRV-9:penalty=presence"),
    (wrong_sampling.PromptNotRepeated, "served_text:SRV-9:penalty=repetition"),
    (wrong_sampling.FrequencyIsPresence, "served_text:SRV-9:penalty=frequency"),
    (wrong_sampling.BiasAtBonusOnly, "served_text:SRV-9:penalty=presence"),
    (wrong_sampling.PenaltiesIgnoredWhenSampled, "served_text:SRV-2:style=three tokens"),
    (wrong_sampling.SameNumbersEachStep, "served_text:SRV-2:style=three tokens"),
    (wrong_sampling.NumbersOfStep, "served_answers:SRV-7:others=31"),
    (wrong_sampling.LastOfBatchIsFirst, "served_load:SRV-10:stream=no"),
    (wrong_sampling.HotGreedyBesideSampled, "served_load:SRV-10:stream=no"),
    (wrong_sampling.LongTextsDrift, "served_text:SRV-1:prompts=one beginning"),
    (wrong_streams.LastLetterHeld, "served_text:SRV-4:stream=yes;stop=absent"),
    (wrong_texts.EndLost, "served_text:SRV-4:stream=no;stop=absent"),
    (wrong_texts.StopInAnyCase, "served_text:SRV-4:stream=no;stop=absent"),
    (wrong_texts.StopsIgnoredAfterMinimum, "served_text:SRV-4:stop=min_tokens"),
    (wrong_samples.OneLimit, "served_answers:SRV-8:parameter=max_tokens"),
    (wrong_samples.OneStops, "served_answers:SRV-8:parameter=stop"),
    (wrong_samples.OneStopsAtTokens, "served_answers:SRV-8:parameter=stop_token_ids"),
    (wrong_samples.OneBiased, "served_answers:SRV-8:parameter=logit_bias"),
    (wrong_samples.OnePenalised, "served_answers:SRV-8:parameter=penalties"),
    (wrong_samples.OneLimitedToTopK, "served_answers:SRV-8:parameter=max_tokens"),
    (wrong_samples.OneTemperature, "served_answers:SRV-8:sampling=drawn"),
    (wrong_samples.OneGreedy, "served_answers:SRV-8:parameter=greedy"),
    (wrong_samples.ReasonOfTheFirst, "served_answers:SRV-8:parameter=stop_token_ids"),
    (wrong_samples.LogprobsOfTheFirst, "served_answers:SRV-8:parameter=logprobs"),
    (wrong_state.BiasKept, "served_load:SRV-10:others=before"),
    (wrong_state.StopsKept, "served_load:SRV-10:others=before"),
    (wrong_state.StopTokensBeside, "served_load:SRV-10:stream=no"),
    (wrong_state.BiasBeside, "served_load:SRV-10:stream=no"),
    (wrong_state.PromptLogprobsCached, "served_answers:SRV-6:sampling=prompt"),
    (wrong_state.CutBesideBad, "served_load:SRV-12:body=n 0"),
    (wrong_state.RewardsIgnored, "served_text:SRV-9:penalty=negative"),
    (wrong_state.RepetitionBelowOneIgnored, "served_text:SRV-9:penalty=repetition below 1"),
    (wrong_state.AllowedIgnored, "served_text:SRV-9:penalty=allowed tokens"),
    (wrong_state.TopPIgnoredWithTopK, "served_text:SRV-2:style=unlike"),
]
"""A fault, and a case that finds it."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), CAUGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_further_wrong_server_is_caught(fault: type[OwnServer], case: str, tmp_path: Path) -> None:
    with fault().served() as address:
        assert set(outcomes_of(address, [case], tmp_path).values()) == {"fail"}


def test_every_wrong_server_has_an_entry() -> None:
    """The greedy bonus token is too faint for the samples of a server's cases."""
    modules = (wrong_answers, wrong_samples, wrong_sampling, wrong_state, wrong_streams, wrong_texts)
    made = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, OwnServer) and value is not OwnServer and name[0] != "_"
    }
    listed = {fault for fault, _ in [*CAUGHT, *WRONG]}
    assert made - listed == {wrong_sampling.BonusGreedy}
