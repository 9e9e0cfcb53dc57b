"""Failures of generations say where wrong drafts and tokens lie, and nothing that may be chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_runs import records_of

from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    OnEmit,
    SpeculationMetrics,
    SpeculativeStep,
)
from verispec.judge import Failure, Kind, Mismatch
from verispec.run.record import FAULT
from verispec.suites.e2e._again import MOST, Again
from verispec.suites.e2e._drafts import ENOUGH, SOME_FIRST, Text, explained, judge_texts
from verispec.suites.e2e._reference_model import Array, ReferenceModel
from verispec.suites.e2e._stale_keys import STALE
from verispec.suites.e2e._texts import check_texts
from verispec.suites.e2e._where import (
    PLAIN,
    STEPS,
    TOKENS,
    MemoryLayout,
    TokenPlace,
    chosen,
    separations,
    separations_of_requests,
    steps_of,
    tokens_of,
)

PROMPT = (1, 2, 3)
SIZE = 9


def result(*steps: tuple[int, int], token: int = 0, preemptions: int = 0) -> GenerationResult:
    """Return a result of some steps, (drafted, accepted) each, with equal tokens."""
    made = tuple(SpeculativeStep(*step) for step in steps)
    length = sum(step.accepted + 1 for step in made)
    return GenerationResult((token,) * length, FinishReason.LENGTH, steps=made, preemptions=preemptions)


def model(likeliest: Callable[[int], int]) -> ReferenceModel:
    """Return a model by the likeliest token of each place of a text."""

    def rows(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        return np.stack([np.eye(SIZE)[int(likeliest(place))] for place in range(len(tokens))])

    return ReferenceModel(rows, rows)


def alternating(count: int) -> list[TokenPlace]:
    """Return steps of which every second one is behind a rejected draft."""
    return steps_of(0, PROMPT, result((0, 0), *[(3, 3), (3, 1)] * count), PLAIN)[2:]


def is_behind_rejected(place: TokenPlace) -> bool:
    return place.before is not None and place.before.accepted < place.before.drafted


def told(wrong: Sequence[TokenPlace], right: Sequence[TokenPlace]) -> str:
    return chosen(separations(wrong, right, "all {} wrong steps", STEPS))


def test_the_one_feature_of_all_wrong_steps_is_told() -> None:
    places = alternating(20)
    wrong = [place for place in places if is_behind_rejected(place)]
    right = [place for place in places if not is_behind_rejected(place)]
    counts = f"all {len(wrong)} wrong steps are behind a rejected draft; {len(right)} others are right"
    assert told(wrong, right) == f"; {counts}"
    some = f"all {len(wrong) - 2} wrong steps are behind a rejected draft; 2 of these and {len(right)} others are right"
    assert told(wrong[2:], right + wrong[:2]) == f"; {some}"


def test_what_may_be_chance_is_not_told() -> None:
    places = alternating(20)
    wrong = [place for place in places if is_behind_rejected(place)]
    right = [place for place in places if not is_behind_rejected(place)]
    assert told(wrong[:1], right) == "", "one wrong step"
    assert told(wrong, right[:2]) == "", "two right ones"
    assert told(wrong[:3], right[:4]) == "", "one of 35 ways to choose three"
    assert told([*wrong, right[0]], right[1:]) == "", "one exception"
    assert told(wrong[:5], right + wrong[5:]) == "", "most of the same kind are right"


def test_of_two_features_neither_is_told() -> None:
    first = steps_of(0, PROMPT, result((0, 0), (3, 1), *[(3, 3)] * 20), PLAIN)
    second = [replace(place, known=place.known + 16 - (place.known - 1) % 16 - 2) for place in first]
    wrong = [replace(second[2], request=n) for n in range(6)]
    right = [place for place in first[3:] if (place.known - 1) % 16 < 13]
    assert "rejected" in told([replace(place, known=18) for place in wrong], right)
    assert told(wrong, right) == "", "the same steps reach the next block"


def test_kinds_of_tokens_are_places_of_their_steps() -> None:
    tokens = tokens_of(0, PROMPT, result((0, 0), (3, 3), (3, 1)), PLAIN)
    names = [{words for words, holds in TOKENS[:6] if holds(place)} for place in tokens]
    plain = {"the first ones of their texts", "in steps without drafts"}
    accepted, bonus, recovered = (
        {kind, "in steps with drafts"} for kind in ("accepted drafts", "bonus tokens", "recovered tokens")
    )
    assert names == [plain, accepted, accepted, accepted, bonus, accepted, recovered]
    assert tokens_of(0, PROMPT, replace(result((0, 0)), token_ids=(0, 0)), PLAIN) == [], "a step is missing"
    forks = tokens_of(0, PROMPT, result((8, 3)), MemoryLayout(has_forks=True))
    assert not any(holds(place) for words, holds in TOKENS if words == "recovered tokens" for place in forks)


def test_features_of_requests_are_counted_by_request() -> None:
    texts = [result((0, 0), *[(3, 3)] * 20, preemptions=n < 4) for n in range(20)]
    steps = [steps_of(n, PROMPT, text, PLAIN) for n, text in enumerate(texts)]
    wrong = [place for own in steps[:4] for place in own[5:]]
    right = [place for own in steps[4:] for place in own]
    expected = "all 4 wrong requests are preempted ones; 16 others are right"
    assert [found.text for found in separations_of_requests(wrong, right)] == [expected]
    assert chosen(separations_of_requests(wrong, right)) == f"; {expected}"
    assert chosen(separations_of_requests(wrong, right[: 4 * 21])) == "", "four of eight requests may be chance"


class _Generator:
    """Answers by a function of the request, and counts the calls."""

    def __init__(self, answer: Callable[[GenerationRequest], GenerationResult]) -> None:
        self._answer = answer
        self.requests: Sequence[GenerationRequest] = ("those of the case",)  # type: ignore[assignment]
        self.calls = 0

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        self.requests, self.calls = requests, self.calls + 1
        return list(map(self._answer, requests))

    def metrics(self) -> SpeculationMetrics:
        return SpeculationMetrics()

    def close(self) -> None: ...


def asked(count: int) -> list[GenerationRequest]:
    return [GenerationRequest((n + 1, 2, 3)) for n in range(count)]


def checked(texts: Sequence[int], again: Sequence[int]) -> str:
    """Return the message of a check of texts of the tokens `texts`, which have the tokens `again` alone; 0 is right."""
    requests = asked(len(texts))
    generator = _Generator(lambda request: result((0, 0), token=again[request.prompt_token_ids[0] - 1]))
    results = [result((0, 0), token=token) for token in texts]

    def check(n: int, own: GenerationResult) -> None:
        if own.token_ids[0]:
            raise Mismatch(Failure(Kind.VALUE, f"text {n}", details={"position": 0}))

    with pytest.raises(Mismatch) as raised:
        check_texts(requests, results, check, again=Again(generator, requests))
    assert generator.requests == ("those of the case",)
    return raised.value.failure.message


def test_wrong_texts_run_again_alone() -> None:
    assert checked([1, 1, 1, 1, 1], [0] * 5) == "text 0; alone, the 5 wrong requests are right"
    assert checked([0, 1, 0, 0], [1] * 4) == "text 1; alone, the wrong request is wrong too"
    assert checked([1] * 9, [1] * 9) == f"text 0; alone, the first {MOST} wrong requests are wrong too"
    assert checked([1, 1, 1, 1], [0, 1, 0, 1]) == "text 0", "some are right"
    assert checked([0, 1, 0, 0], [0] * 4) == "text 1", "one in four may be right by chance"
    assert checked([1], [1]) == "text 0", "it was alone"


def test_right_texts_do_not_run_again() -> None:
    generator = _Generator(lambda _: result((0, 0)))
    check_texts(asked(2), [result((0, 0))] * 2, lambda n, own: None, again=Again(generator, asked(2)))
    assert not generator.calls


def test_what_fails_again_by_an_exception_leaves_the_failure() -> None:
    def fail(_: GenerationRequest) -> GenerationResult:
        raise RuntimeError("out of memory")

    generator = _Generator(fail)
    assert Again(generator, asked(2)).told([0, 1], 1.0, lambda n, own: (1, 0)) == ""
    assert Again(generator, asked(2), more=asked(2)).in_pieces(2, 1.0, lambda request, own: (1, 0)) == ""


TEXT = result((0, 0), *[(3, 2), (3, 3)] * 12)


def wrong_behind_rejected() -> ReferenceModel:
    """Return a drafter that agrees with all drafts of `TEXT` but the first ones behind rejected drafts."""
    steps, place, other = TEXT.steps, 0, set[int]()
    for step, before in zip(steps, (None, *steps[:-1]), strict=True):
        if before is not None and before.accepted < before.drafted:
            other.add(place)
        if step.accepted < step.drafted:
            other.add(place + step.accepted)
        place += step.accepted + 1
    return model(lambda place: int(place in other))


def test_drafts_are_told_by_their_steps_alone_and_in_pieces() -> None:
    requests = [GenerationRequest((7,) * 8)]
    generator = _Generator(lambda request: TEXT if len(request.prompt_token_ids) > 5 else result(*[(0, 0)] * 3))
    again = Again(generator, requests, "alone and without a pause", more=requests * 3)
    with pytest.raises(Mismatch) as raised:
        judge_texts(wrong_behind_rejected(), [(requests[0].prompt_token_ids, TEXT)], 3, MemoryLayout(chunk=5), again)
    message = raised.value.failure.message
    assert "at token 4, 3 drafts were accepted; the drafter's own would be 0 of 3" in message
    assert "; all 12 wrong steps are behind a rejected draft; 12 others are right" in message
    assert message.endswith("; alone and without a pause, the wrong request is wrong too"), (
        "three plain steps tell little"
    )
    generator = _Generator(lambda request: TEXT)
    with pytest.raises(Mismatch) as raised:
        again = Again(generator, requests, more=requests)
        judge_texts(wrong_behind_rejected(), [(requests[0].prompt_token_ids, TEXT)], 3, MemoryLayout(chunk=5), again)
    assert raised.value.failure.message.endswith("; prompts of 5 tokens, read in one piece, have wrong drafts too")


def explanation(wrong: int, fitting: int, refuted: int = 2) -> tuple[str, str]:
    """Return message and fault for a text with so many wrong steps, which so many mistakes explain."""
    text: Text = (PROMPT, result((0, 0), *[(1, 1)] * 20))
    right = model(lambda place: place % 2 == 1 and place < 2 * wrong), 1
    own, other = (model(lambda place: 0), 1), (model(lambda place: place % 2), 1)
    mistakes = {f"mistake {n}": (lambda n=n: [own if n < fitting else other]) for n in range(fitting + refuted)}
    failure = explained(Mismatch(Failure(Kind.RELATION, "wrong")), [right], mistakes, [text]).failure
    return failure.message, failure.details.get(FAULT, "")


def test_a_mistake_is_named_if_it_alone_gives_enough_wrong_steps() -> None:
    assert explanation(ENOUGH, 1) == ("wrong; all drafts are as if mistake 0", "mistake 0")
    assert explanation(ENOUGH - 1, 1) == ("wrong", "")
    assert explanation(ENOUGH, 0) == ("wrong", "")
    assert explanation(ENOUGH, 2) == ("wrong; all drafts are as if mistake 0, or mistake 1", "mistake 0, or mistake 1")
    assert explanation(ENOUGH, 3) == ("wrong", "")


def test_a_mistake_whose_drafts_are_never_accepted_is_not_named() -> None:
    """Whatever else an engine drafts, no draft of it is accepted either."""
    text: Text = (PROMPT, result((0, 0), *[(1, 0)] * 20))
    right, other = (model(lambda place: 0), 1), (model(lambda place: 5), 1)
    mismatch = Mismatch(Failure(Kind.RELATION, "wrong"))
    assert explained(mismatch, [right], {"mistake": lambda: [other]}, [text]) is mismatch


def test_the_first_wrong_tokens_of_texts_are_told() -> None:
    """A state that is not advanced over accepted drafts is wrong in the next step, whatever the step accepts."""
    made = result((0, 0), (3, 0), (3, 0), (3, 0), (3, 1), (3, 0), (3, 2), (3, 3))

    def check(n: int, own: GenerationResult) -> None:
        raise Mismatch(Failure(Kind.VALUE, f"text {n}", details={"position": 6}))

    with pytest.raises(Mismatch) as raised:
        check_texts(asked(6), [made] * 6, check, what="the first of {} texts")
    where = "the first of 6 texts are the first ones behind steps that accepted drafts"
    assert raised.value.failure.message == f"text 0; {where}; 36 others are right"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "case", "words"),
    [
        (
            "schedule_mutants:pause_forgets",
            "draft_schedules:GEN-42:draft=draft_model k=3;batch=shrinks;pause=24",
            "alone and without a pause, the wrong request is right",
        ),
        (
            "drafter_mutants:state_of_the_target",
            "drafters:GEN-48:draft=mtp k=3",
            "as if later drafts read the target's state of the first one",
        ),
        (
            "drafter_mutants:state_of_the_first",
            "greedy:GEN-14:draft=eagle3 k=5;check=chains",
            "as if all later drafts read the head's state of the first one",
        ),
        (
            "drafter_mutants:ends_left_out",
            "drafters:GEN-46:limits=defaults",
            "as if occurrences at the end of a text did not count",
        ),
        (
            "tree_mutants:roots_of_the_first_rows",
            "trees:GEN-14:tree=wide;target=tiny;check=ranks",
            "alone, the 8 wrong requests are right",
        ),
        (
            "drafter_mutants:state_after_the_norm",
            "drafters:GEN-48:draft=mtp k=3",
            "as if the layer read the target's state behind the final norm, not before it",
        ),
        (
            "drafter_mutants:state_before_the_last_layer",
            "drafters:GEN-48:draft=mtp k=3",
            "as if the layer read the target's state before the last layer, not behind it",
        ),
        ("drafter_mutants:first_of_the_batch", "drafters:GEN-48:draft=mtp k=3", f"as if {SOME_FIRST}"),
        ("drafter_mutants:heads_keys_stay", "greedy:GEN-14:draft=eagle3 k=3", f"as if {STALE}"),
    ],
    ids=["pause", "state", "same state", "ends", "roots", "norm", "layer", "first", "keys"],
)
def test_faulty_engines_are_told(engine: str, case: str, words: str, tmp_path: Path) -> None:
    assert words in records_of(engine, [case], tmp_path)[case]["failure"]["message"]
