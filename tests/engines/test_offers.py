"""Parts that adapters share: offers of options and parameters, and admission of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.adapters.admission import Admission, OneByOne, Turn
from verispec.engines.adapters.offers import OPTIONS, PARAMETERS, Offers
from verispec.engines.adapters.partial import imported
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, LoadOptions
from verispec.errors import VerispecError

OFFERS = Offers(
    "toy",
    ("none", "ngram"),
    options={"dtype": ("float32", "float16"), "ngram_max": range(6)},
    parameters=("top_k",),
    words={"num_blocks": "blocks"},
)
EVERYWHERE = {"prompt_token_ids", "max_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "ngram", "ngram_max": 5, "num_speculative_tokens": 9},
        {"dtype": "float16", "max_model_len": 9, "max_num_seqs": 2, "max_num_batched_tokens": 8, "seed": 3},
        {"ngram_max": 9},  # It has no meaning without prompt lookup.
    ],
)
def test_what_is_offered_can_be_loaded(options: dict[str, Any]) -> None:
    assert OFFERS.lacks_option(LoadOptions(**options)) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"method": "suffix"}, "toy does not draft with suffix"),
        ({"method": "ngram", "ngram_max": 6}, "toy has no such long matches of prompt lookup"),
        ({"method": "ngram", "num_speculative_tokens": "auto"}, "toy drafts with one K"),
        ({"dtype": "bfloat16"}, "toy has no dtype=bfloat16"),
        ({"num_blocks": 9}, "toy has no blocks"),
        ({"async_scheduling": True}, "toy has no asynchronous scheduling"),
        ({"tensor_parallel_size": 2}, "toy has no ranks in this adapter"),
    ],
)
def test_what_is_not_offered_is_unsupported(options: dict[str, Any], reason: str) -> None:
    assert OFFERS.lacks_option(LoadOptions(**options)) == Unsupported(reason)


def test_every_option_has_words_or_is_everywhere() -> None:
    """Every adapter refuses a new field until it offers it; the field then needs words here."""
    common = {"method", "draft", "num_speculative_tokens", "max_model_len", "max_num_seqs", "max_num_batched_tokens"}
    of_methods = {name for name in LoadOptions.__dataclass_fields__ if name.startswith(("suffix_", "synthetic_"))}
    assert OPTIONS.keys() | common | of_methods | {"seed", "dtype"} >= LoadOptions.__dataclass_fields__.keys()
    assert OPTIONS.keys() <= LoadOptions.__dataclass_fields__.keys()
    assert PARAMETERS.keys() | EVERYWHERE == GenerationRequest.__dataclass_fields__.keys()


def test_parameters_that_are_not_offered_are_refused() -> None:
    OFFERS.refuse(GenerationRequest((1,), temperature=1.0, top_k=3, seed=1, stop_token_ids=(2,)))
    with pytest.raises(UnsupportedCall, match="toy has no bad words"):
        OFFERS.refuse(GenerationRequest((1,), bad_words=((1,),)))
    with pytest.raises(UnsupportedCall, match="toy has no such order"):
        OFFERS.refuse(GenerationRequest((1,)), [(0, "nothing"), (1, "such order")])


class Counting(OneByOne):
    """Counts up from the prompt's last token."""

    turns: list[Turn]

    def run(self, turn: Turn) -> GenerationResult:
        self.turns = [*getattr(self, "turns", []), turn]
        tokens: list[int] = []
        while len(tokens) < turn.most and (not tokens or tokens[-1] not in turn.stops):
            tokens.append(turn.request.prompt_token_ids[-1] + len(tokens) + 1)
        return turn.result(tokens)


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    config = {"vocab_size": 50, "max_position_embeddings": 16, "eos_token_id": [9, 12]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return Counting(Admission(OFFERS, LoadOptions(seed=7), tmp_path))


@pytest.mark.parametrize(
    ("fields", "count", "reason"),
    [
        ({"prompt_token_ids": (1,), "max_tokens": 3}, 3, FinishReason.LENGTH),
        ({"prompt_token_ids": (1,)}, 8, FinishReason.STOP),
        ({"prompt_token_ids": (1,), "ignore_eos": True}, 15, FinishReason.LENGTH),
        ({"prompt_token_ids": (1,), "stop_token_ids": (4,)}, 3, FinishReason.STOP),
    ],
)
def test_texts_end_at_a_stop_token_or_a_limit(
    counting: Counting, fields: dict[str, Any], count: int, reason: FinishReason
) -> None:
    emitted: list[int] = []
    request = GenerationRequest(**{"max_tokens": 40} | fields)
    [result] = counting.generate([request], lambda index, tokens, kinds: emitted.extend(tokens))
    assert (len(result.token_ids), result.finish_reason) == (count, reason)
    assert emitted == list(result.token_ids)


def test_requests_without_a_seed_have_seeds_of_their_own(counting: Counting) -> None:
    counting.generate([GenerationRequest((1,)), GenerationRequest((1,), seed=3), GenerationRequest((1,))])
    assert [turn.seed for turn in counting.turns] == [7, 3, 8]


@pytest.mark.parametrize("prompt", [(1,) * 16, (50,), (-1,)])
def test_a_prompt_that_cannot_be_read_is_refused(counting: Counting, prompt: tuple[int, ...]) -> None:
    with pytest.raises(VerispecError, match="V-GEN-PROMPT"):
        counting.generate([GenerationRequest(prompt)])


def test_a_length_beyond_the_models_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 5, "max_position_embeddings": 8}))
    with pytest.raises(VerispecError, match="max_model_len=9 is more than"):
        Admission(OFFERS, LoadOptions(max_model_len=9), tmp_path)
    with pytest.raises(VerispecError, match="V-MODEL-FOLDER"):
        Admission(OFFERS, LoadOptions(), tmp_path / "nowhere")


def test_a_missing_module_says_what_to_install() -> None:
    with pytest.raises(VerispecError, match="pip install toys"):
        imported("V-ENG-TOY", "toy", ("json", "no_such_toy"), "pip install toys")
    assert imported("V-ENG-TOY", "toy", ("json",), "") == (json,)
