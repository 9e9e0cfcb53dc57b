"""Generated text: the fewest requests that fail, and their test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle_engine import OracleEngine

from verispec import fixtures
from verispec.engines import StandaloneBody
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.errors import VerispecError
from verispec.judge import Failure, Kind, Mismatch
from verispec.saved_calls import texts
from verispec.saved_calls.export import source
from verispec.saved_calls.file import SavedCase
from verispec.suites.e2e._reference_model import greedy_text

TARGET = fixtures.model("target")
CASE = "e2e/greedy:GEN-3:draft=ngram k=3;others=sampled"
pytestmark = pytest.mark.timeout(600)


def plain(prompt: Sequence[int], length: int = 20) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), max_tokens=length, ignore_eos=True)


def sampled(prompt: Sequence[int]) -> GenerationRequest:
    return replace(plain(prompt), temperature=0.8, seed=3)


class Faulty:
    """Greedy text is right, but for its second token beside a sampled request; six requests raise if told so."""

    def __init__(self, raises: bool = False) -> None:
        self.raises = raises
        self.closed = 0

    def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
        if self.raises and any(request.top_k for request in requests):
            raise Mismatch(Failure(Kind.RAISED, f"RuntimeError: nothing to reduce in {len(requests)} requests"))
        beside = any(request.temperature for request in requests)
        answers = []
        for request in requests:
            text = list(greedy_text(TARGET, tuple(request.prompt_token_ids), request.max_tokens))
            if beside and not request.temperature and len(text) > 1:
                text[1] = (text[1] + 7) % 50
            answers.append(GenerationResult(tuple(text), FinishReason.LENGTH))
        return answers

    def metrics(self) -> Any: ...

    def close(self) -> None:
        self.closed += 1


PROMPTS = [tuple(range(5 + n, 25 + n)) for n in range(6)]


def test_one_neighbour_and_a_few_tokens_are_left() -> None:
    asked = [each(prompt) for prompt, each in zip(PROMPTS, [sampled, plain] * 3, strict=True)]
    found = texts.smallest(Faulty(), Faulty, TARGET, asked, 120)
    assert found is not None
    requests, wrong = found
    assert sorted(request.temperature for request in requests) == [0, 0.8]
    assert all(len(request.prompt_token_ids) <= texts.SHORT[0] for request in requests)
    assert {request.max_tokens for request in requests} == {2}
    own = requests[wrong.request]
    assert wrong.expected == greedy_text(TARGET, tuple(own.prompt_token_ids), 2)
    assert (wrong.got[0], wrong.got[1] != wrong.expected[1]) == (wrong.expected[0], True)


def test_text_that_is_right_is_not_accused() -> None:
    assert texts.smallest(Faulty(), Faulty, TARGET, [plain(PROMPTS[0]), plain(PROMPTS[1])], 60) is None
    limited = replace(plain(PROMPTS[0]), min_tokens=3)
    assert texts.smallest(Faulty(), Faulty, TARGET, [limited, sampled(PROMPTS[1])], 60) is None, (
        "it has rules of its own"
    )


def test_another_fault_of_the_same_type_is_not_taken_for_the_first() -> None:
    class Two(Faulty):
        """Raises by one fault for two requests or more, by another for short texts."""

        def generate(self, requests: Sequence[GenerationRequest], on_emit: Any = None) -> list[GenerationResult]:
            if min(request.max_tokens for request in requests) < 20:
                raise Mismatch(Failure(Kind.RAISED, "RuntimeError: too short"))
            if len(requests) > 1:
                raise Mismatch(Failure(Kind.RAISED, f"RuntimeError: index {len(requests)} is out of bounds"))
            return super().generate(requests, on_emit)

    found = texts.smallest(Two(), Two, TARGET, [plain(prompt) for prompt in PROMPTS], 120)
    assert found is not None
    assert (found[1].error, len(found[0])) == ("RuntimeError: index 2 is out of bounds", 2)
    assert {request.max_tokens for request in found[0]} == {20}


def test_an_exception_needs_another_generator() -> None:
    loaded: list[Faulty] = []

    def load() -> Faulty:
        loaded.append(Faulty(raises=True))
        return loaded[-1]

    asked = [plain(PROMPTS[0]), replace(sampled(PROMPTS[1]), top_k=3), plain(PROMPTS[2])]
    found = texts.smallest(load(), load, TARGET, asked, 120)
    assert found is not None
    assert (found[1].error, len(found[0]), found[0][0].top_k) == ("RuntimeError: nothing to reduce in 1 requests", 1, 3)
    assert len(loaded) > 2 and all(generator.closed == 1 for generator in loaded)


class Sourced(OracleEngine):
    def standalone_text(self, options: Any, requests: Any) -> StandaloneBody:
        line = f"tokens = generate(TARGET, DRAFT, {options.num_speculative_tokens}, {len(requests)})"
        return StandaloneBody(("from engine import generate",), (line,))


def test_the_test_names_the_folders_beside_it(tmp_path: Path) -> None:
    requests = (plain([3, 4], 2), sampled([5]))
    wrong = texts.WrongText("", 0, (7, 8), (7, 9))
    options = {"method": "draft_model", "draft": fixtures.model("draft"), "num_speculative_tokens": 5}
    text = json.loads(json.dumps(texts.to_json(TARGET, options, requests, wrong)))
    assert texts.from_json(text)[1] == requests
    moved = texts.copy_checkpoints(text, tmp_path / "test_bug.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test_bug_draft", "test_bug_target"]
    assert (tmp_path / "test_bug_target/config.json").read_bytes() == (TARGET / "config.json").read_bytes()
    written = source(SavedCase(CASE, 7, "mine", text=moved), Sourced())
    assert 'TARGET = str(Path(__file__).with_name("test_bug_target"))' in written.replace("'", '"')
    assert "tokens = generate(TARGET, DRAFT, 5, 2)" in written
    assert "assert list(tokens[0])[:2] == [7, 8], tokens[0]" in written
    compile(written, "test_bug.py", "exec")


def test_why_there_is_no_test_is_said() -> None:
    with pytest.raises(VerispecError, match="only greedy ones without further parameters"):
        source(SavedCase(CASE, 7, "mine", failure={"kind": "relation broken"}), Sourced())
    with pytest.raises(VerispecError, match="thousands of requests"):
        law = SavedCase("sampler/whole_sampler:WS-10:limits=none;mode=law", 7, "mine", failure={"kind": "law"})
        source(law, Sourced())
    with pytest.raises(VerispecError, match="which step or requests it was given: no answer within 2 s"):
        source(SavedCase(CASE, 7, "mine", failure={"kind": "timeout", "message": "no answer within 2 s"}), Sourced())
