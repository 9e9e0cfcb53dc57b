"""Wrong texts of trees, of chunked prompts and of sliding windows: the one mistake that gives them is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_runs import records_of

from verispec import fixtures
from verispec.engines.protocol.generation import FinishReason, GenerationResult, SpeculativeStep
from verispec.judge import Failure, Kind, Mismatch
from verispec.run.record import ALTERNATIVELY, FAULT
from verispec.suites.e2e._chunk_states import chunk_mistakes
from verispec.suites.e2e._explained_texts import ENOUGH, explained_texts
from verispec.suites.e2e._reference_model import Array, ReferenceModel, greedy_text, reference_model
from verispec.suites.e2e._tree_texts import (
    FIRST,
    FOREIGN,
    KEPT,
    LAST,
    LAW_MISTAKES,
    LONE,
    PLACES,
    TESTED,
    TREE_MISTAKES,
    UNMOVED,
    TreeTexts,
    level_law,
)

TARGET, DRAFTER = fixtures.model("target"), fixtures.model("draft")
CHAIN, WIDE = ((0,), (0, 0), (0, 0, 0)), ((0,), (1,), (2,))
PROMPT = tuple(range(40, 52))
LENGTH = 24


def model(token: int, size: int = 9) -> ReferenceModel:
    """Return a model of which one token is always the most likely one."""

    def rows(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        return np.tile(np.eye(size)[token], (len(tokens), 1))

    return ReferenceModel(rows, rows)


def named(wrong: int, *mistaken: int, logprobs: tuple[float, ...] = ()) -> str:
    """Return the fault that is named for a text of so many ones, by models of these tokens."""
    text = PROMPT, (1,) * wrong
    mistakes = {f"mistake {n}": (lambda token=token: [model(token)]) for n, token in enumerate(mistaken)}
    failure = Mismatch(Failure(Kind.VALUE, "wrong"))
    found = explained_texts(failure, model(0), mistakes, [text], "alone, ", {text: logprobs}).failure
    fault = str(found.details.get(FAULT, ""))
    assert found.message == ("wrong" + f"; alone, all tokens are as if {fault}" * bool(fault))
    return fault


def test_a_mistake_is_named_that_alone_gives_enough_wrong_tokens() -> None:
    assert named(ENOUGH, 1, 2) == "mistake 0"
    assert named(ENOUGH, 1, 1) == "mistake 0, or mistake 1"
    assert named(ENOUGH, 1, 1, 1) == "", "three mistakes fit"
    assert named(ENOUGH, 2, 3) == "", "none fits"
    assert named(ENOUGH - 1, 1) == "", "few tokens are wrong"


def test_a_mistake_has_to_give_the_log_probabilities_too() -> None:
    own = float(1 - np.log(8 + np.e))
    assert named(ENOUGH, 1, logprobs=(own,) * ENOUGH) == "mistake 0"
    assert named(ENOUGH, 1, logprobs=(own + 0.1,) * ENOUGH) == ""


def trees(paths: tuple[tuple[int, ...], ...]) -> tuple[TreeTexts, tuple[int, ...], list[tuple[int, ...]]]:
    """Return the target's own text of trees, its tokens, and the path of each step."""
    tokens = greedy_text(TARGET, PROMPT, LENGTH)
    rows = reference_model(DRAFTER).logits(PROMPT, tokens)
    ranks = [(-row).argsort().tolist().index(token) for row, token in zip(rows, tokens, strict=True)]
    steps, accepted, place = [SpeculativeStep(0, 0)], [()], 1
    while place < LENGTH:
        path: tuple[int, ...] = ()
        while place + len(path) < LENGTH - 1 and (*path, ranks[place + len(path)]) in paths:
            path += (ranks[place + len(path)],)
        steps.append(SpeculativeStep(len(paths), len(path)))
        accepted.append(path)
        place += len(path) + 1
    result = GenerationResult(tokens, FinishReason.LENGTH, steps=tuple(steps))
    return TreeTexts(TARGET, DRAFTER, paths, [(PROMPT, result)]), tokens, accepted


def distances(paths: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    """Return how far the logits of each mistake are from the target's own."""
    made, tokens, _ = trees(paths)
    right, mistaken = reference_model(TARGET).logits(PROMPT, tokens), made.mistaken()
    return {
        name: float(np.abs(mistaken[told]()[0].logits(PROMPT, tokens) - right).max())
        for told, name in TREE_MISTAKES.items()
    }


def test_a_chain_is_as_it_should_be_by_all_mistakes_of_trees() -> None:
    assert all(distance < 1e-9 for distance in distances(CHAIN).values())


def test_mistakes_of_a_wide_tree_change_the_text() -> None:
    found = distances(WIDE)
    assert found[UNMOVED] == found[LONE] > 0.1, "one node alone is accepted"
    assert min(found[FOREIGN], found[PLACES]) > 0.1


def test_the_last_accepted_path_before_a_wrong_token_is_told() -> None:
    made, tokens, accepted = trees(WIDE)
    number = next(n for n, path in enumerate(accepted) if path)
    begin = sum(len(path) + 1 for path in accepted[:number])
    words = f"has the ranks ({accepted[number][0]}) in 1 text"
    assert made.behind({(PROMPT, tokens): begin + 2}).endswith(words)
    assert made.behind({(PROMPT, tokens): begin}) == "", "no draft was accepted before it"


def test_lost_states_of_chunks_leave_short_prompts_alone() -> None:
    target = fixtures.model("hybrid")
    tokens, right = (7, 8, 9), reference_model(target)
    for models in chunk_mistakes(target, 8).values():
        for lost in models():
            same = [
                np.allclose(lost.logits(p, tokens), right.logits(p, tokens), atol=1e-9) for p in (PROMPT[:8], PROMPT)
            ]
            assert same == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "case", "words"),
    [
        ("tree_mutants:branches_seen", "trees:GEN-44:tree=forks", FOREIGN),
        ("tree_mutants:path_not_moved", "trees:GEN-44:tree=forks", UNMOVED),
        ("tree_mutants:positions_of_places", "trees:GEN-44:tree=skipped ranks", PLACES),
        ("tree_mutants:lone_node_not_moved", "trees:GEN-44:tree=forks;check=ends apart", LONE),
        ("tree_mutants:lone_node_not_moved", "trees:GEN-44:tree=wide", LONE),
    ],
)
def test_mistakes_in_trees_are_named(engine: str, case: str, words: str, tmp_path: Path) -> None:
    told = {name: told for told, name in TREE_MISTAKES.items()}[words]
    assert told in records_of(engine, [case], tmp_path)[case]["failure"]["details"][FAULT].split(ALTERNATIVELY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "mistake"),
    [("tree_mutants:branches_drafted_together", FOREIGN), ("tree_mutants:drafted_at_places", PLACES)],
)
def test_mistakes_of_a_drafter_of_trees_are_named(engine: str, mistake: str, tmp_path: Path) -> None:
    case = "trees:GEN-14:tree=forks;target=tiny;drafter=close;check=every path"
    (told,) = (words for words, own in TREE_MISTAKES.items() if own == mistake)
    assert records_of(engine, [case], tmp_path)[case]["failure"]["details"][FAULT] == f"for the drafter {told}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("one_number_a_level", "the drafts of a level shared one random number"),
        ("number_of_the_last_node", "the token behind a path were drawn by the number of the tree's last draft"),
        ("number_of_the_first_node", "the token behind a path were drawn by the number of the tree's first draft"),
    ],
)
def test_random_numbers_that_serve_twice_are_named(engine: str, told: str, tmp_path: Path) -> None:
    case = "trees:GEN-44:tree=wide;limits=none;mode=law"
    failure = records_of(f"tree_mutants:{engine}", [case], tmp_path)[case]["failure"]
    assert failure["details"][FAULT].removesuffix(", for a last token too") == told


@pytest.mark.parametrize("mistake", LAW_MISTAKES.values())
def test_mistaken_laws_of_a_level_are_laws(mistake: str) -> None:
    """Without a draft all are the right law, and so are most with one draft, and a draw that has one token left."""
    p = np.array([0.4, 0.3, 0.2, 0.1])
    for children in ((), (1,), (1, 0), (2, 1, 0)):
        accepted, drawn = level_law(p, children, mistake)
        assert np.isclose((accepted + drawn).sum(), 1)
        same = np.allclose(accepted + drawn, p)
        is_lone = mistake in (TESTED, LAST, FIRST) and len(children) == len(p) - 1
        assert same == (is_lone or len(children) < (1 if mistake in (KEPT, TESTED, LAST, FIRST) else 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "layers"),
    [
        ("window_mutants:one_mask", "all layers"),
        ("window_mutants:windows_ignored", "no layer"),
        ("window_mutants:windows_exchanged", "only the layers that should have none"),
    ],
)
def test_windows_of_other_layers_are_named(engine: str, layers: str, tmp_path: Path) -> None:
    case = "windows:GEN-41:draft=none;target=mixed windows"
    failure = records_of(engine, [case], tmp_path)[case]["failure"]
    assert failure["details"][FAULT] == f"{layers} had the window"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("window_mutants:window_without_the_token", "the window had one token more"),
        ("window_mutants:windows_ignored", "there was no window"),
    ],
)
def test_a_window_of_another_size_is_named(engine: str, told: str, tmp_path: Path) -> None:
    case = "windows:GEN-41:draft=none;target=windowed"
    assert records_of(engine, [case], tmp_path)[case]["failure"]["details"][FAULT] == told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "number"), [("hybrid_mutants:chunk_forgotten", 0), ("hybrid_mutants:window_of_chunks_forgotten", 1)]
)
def test_states_lost_between_chunks_are_named(engine: str, number: int, tmp_path: Path) -> None:
    case = "hybrid:GEN-45:memory=blocks of 32, chunks of 24;draft=none;target=hybrid"
    told = list(chunk_mistakes(fixtures.model("hybrid"), 24))[number]
    assert records_of(engine, [case], tmp_path)[case]["failure"]["details"][FAULT] == told
