"""Texts of draft trees: the paths that were accepted, and the texts that a target with a mistake in its trees has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from verispec.engines.protocol.generation import GenerationResult
from verispec.suites.e2e._reference_model import Array, ReferenceModel, Text, Tokens, model, quiet, reference_model

Ranks = tuple[int, ...]
"""Ranks of the drafts from the root on."""

UNMOVED, LONE, FOREIGN, PLACES = "unmoved", "lone", "foreign", "places"
TREE_MISTAKES = {
    "keys of accepted nodes stayed in the places of the tree": UNMOVED,
    "a node that was accepted alone had the keys of the tree's first node": LONE,
    "a node saw all nodes before it, those of other branches too": FOREIGN,
    "a node's position were its place in the tree, not its depth": PLACES,
}
"""Mistakes of a target that verifies trees, in words, to follow "as if"."""


DRAFTER_MISTAKES = {told: mistake for told, mistake in TREE_MISTAKES.items() if mistake in (FOREIGN, PLACES)}
"""Those of them that a drafter can make."""


def drafted_with(drafter: Path, known: Sequence[int], paths: Sequence[Ranks], mistake: str) -> dict[Ranks, int]:
    """Return the tokens of a tree behind a text, as a drafter with one of `DRAFTER_MISTAKES` drafts them.

    Args:
        drafter: folder of the draft model.
        known: tokens of the text.
        paths: nodes of the tree, in the order of their places, shorter ones first.
        mistake: a value of `DRAFTER_MISTAKES`.
    """
    root, tokens = len(known) - 1, dict[Ranks, int]()
    number = {(): root} | {path: root + 1 + n for n, path in enumerate(paths)}
    for depth in range(1, 1 + max(map(len, paths))):
        own = list(tokens)
        places = [root + (number[path] - root if mistake == PLACES else len(path)) for path in own]
        mask = torch.full((root + 1 + len(own),) * 2, float("-inf"), dtype=torch.float64).triu(1)
        for path in own if mistake != FOREIGN else ():
            hidden = [number[other] for other in own if path[: len(other)] != other]
            mask[number[path], hidden] = float("-inf")
        with quiet():
            output = model(drafter, torch.float64)(
                torch.tensor([[*known, *tokens.values()]]),
                attention_mask=mask[None, None],
                position_ids=torch.tensor([[*range(root + 1), *places]]),
                use_cache=False,
            )
        for path in paths:
            if len(path) == depth:
                falling = output.logits[0, number[path[:-1]]].argsort(descending=True, stable=True)
                tokens[path] = int(falling[path[-1]])
    return tokens


def accepted_with(tokens: Mapping[Ranks, int], following: Sequence[int]) -> int:
    """Return how many drafts of a tree a greedy step accepts whose text goes on with `following`."""
    path: Ranks = ()
    for wanted in following:
        child = next(
            (p for p, token in tokens.items() if p[:-1] == path and len(p) > len(path) and token == wanted), None
        )
        if child is None:
            break
        path = child
    return len(path)


SHARED, KEPT, UNSCALED, TESTED, LAST, FIRST = "shared", "kept", "unscaled", "tested", "last", "first"
LAW_MISTAKES = {
    "the drafts of a level shared one random number": SHARED,
    "a rejected draft could be drawn behind its path": KEPT,
    "a draft were tested by its own probability, and not by its share of what its rejected siblings leave": UNSCALED,
    "the token behind a path were drawn by the number that has tested the last draft": TESTED,
    "the token behind a path were drawn by the number of the tree's last draft": LAST,
    "the token behind a path were drawn by the number of the tree's first draft": FIRST,
}
"""Mistakes of the verification of trees by their words, to follow "as if"."""


def chance_of(p: Array, children: Sequence[int], token: int) -> float:
    """Return the probability that a child is accepted once those before it are rejected."""
    left = p.copy()
    left[list(children[: children.index(token)])] = 0.0
    return float(left[token] / left.sum()) if left.sum() > 0 else 0.0


def level_law(
    p: Array,
    children: Sequence[int],
    mistake: str,
    number: tuple[float, float] | None = None,
    *,
    has_last: bool = True,
) -> tuple[Array, Array]:
    """Return the probabilities of the next token as an accepted draft, and behind the end of a path; [V] each.

    Args:
        p: the target's probabilities.
        children: tokens of the drafts, in the order in which they are tried.
        mistake: a value of `LAW_MISTAKES`.
        number: range of the random number of the draw behind a path, as far as the tests before this level show it;
            None for a level behind the root.
        has_last: True if the last of the children is the tree's last node.
    """
    accepted, left = np.zeros_like(p), p.copy()
    passed, rest, chance = 0.0, 1.0, 0.0
    for token in children:
        chance = float(p[token] if mistake == UNSCALED else left[token] / left.sum()) if left.sum() > 0 else 0.0
        if mistake == SHARED:
            share, passed = max(chance - passed, 0.0), max(chance, passed)
            rest = 1 - passed
        else:
            share, rest = rest * chance, rest * (1 - chance)
        accepted[token] += share
        left[token] = 0.0
    drawn = p if mistake == KEPT or not left.sum() > 0 else left / left.sum()
    if children and (mistake == TESTED or (mistake == LAST and has_last)):
        number = chance, 1.0
    elif children and mistake == FIRST and number is None:
        number = chance_of(p, children, children[0]), 1.0
    low, high = number or (0.0, 1.0)
    if low < high:
        drawn = np.diff(drawn.cumsum().clip(low, high), prepend=low) / (high - low)
    return accepted, rest * drawn


def mistaken_tree_laws(
    rows: Callable[[Tokens], Array], drafter: Path, prompt: Tokens, paths: Sequence[Ranks]
) -> dict[str, Array]:
    """Return the probabilities [V * V * V] of three tokens behind a prompt, by the mistake in words.

    Engines may draft for the last token of a request, which needs no draft, or not.

    Args:
        rows: function from tokens behind the prompt to the target's probabilities of the next one.
        drafter: folder of the draft model.
        prompt: the prompt; the first token behind it is not drafted.
        paths: nodes of the tree, in the order of their places.
    """
    first = rows(())
    size = len(first)
    top = [path for path in paths if len(path) == 1]

    def drafted(*known: int) -> dict[Ranks, int]:
        return drafted_with(drafter, (*prompt, *known), paths, "")

    laws = {(told, ends): np.zeros((size,) * 3) for told in LAW_MISTAKES for ends in ("", ", for a last token too")}
    for a in range(size):
        tree = drafted(a)
        for b in range(size):
            third, anew = rows((a, b)), [token for path, token in drafted(a, b).items() if path in top]
            node = next((path for path in top if tree[path] == b), None)
            lower = [path for path in paths if path[:-1] == node]
            below, tried = [tree[path] for path in lower], [tree[path] for path in top]
            is_top, is_lower = paths[-1] in top, paths[-1] in lower
            for (told, ends), law in laws.items():
                mistake = LAW_MISTAKES[told]
                accepted, drawn = level_law(rows((a,)), tried, mistake, has_last=is_top)
                is_known = mistake == TESTED or (mistake == LAST and node == paths[-1])
                number = 0.0, chance_of(rows((a,)), tried, b) if node and is_known else 1.0
                if mistake == FIRST and node:
                    chance = chance_of(rows((a,)), tried, tried[0])
                    number = (0.0, chance) if node == top[0] else (chance, 1.0)
                behind = sum(level_law(third, below, mistake, number, has_last=is_lower))
                last = sum(level_law(third, anew, mistake, has_last=is_top)) if ends else third
                law[a, b] = first[a] * (accepted[b] * behind + drawn[b] * last)
    return {told + ends: law.ravel() for (told, ends), law in laws.items()}


@dataclass(frozen=True)
class TreeStep:
    """A step of a text.

    Attributes:
        root: place of the last token before the step in the whole sequence.
        tokens: tokens of the drafted nodes.
        accepted: numbers of the accepted nodes among them.
    """

    root: int
    tokens: tuple[int, ...]
    accepted: tuple[int, ...]


class TreeTexts:
    """Texts of one drafter's trees.

    Args:
        target: folder of the target.
        drafter: folder of the draft model.
        paths: nodes of the tree, in the order of their places.
        texts: prompts and results.
    """

    def __init__(
        self,
        target: Path,
        drafter: Path,
        paths: Sequence[Ranks],
        texts: Sequence[tuple[Tokens, GenerationResult]],
    ) -> None:
        self._target, self._drafter, self._paths = target, drafter, sorted(paths, key=lambda path: (len(path), path))
        self._steps: dict[Text, tuple[TreeStep, ...]] = {}
        """Steps by text; none where an accepted token is no draft of the float64 drafter's."""
        for prompt, result in texts:
            text = tuple(prompt), result.token_ids
            self._steps[text] = self._steps_of(text, result)

    def mistaken(self) -> dict[str, Callable[[], Sequence[ReferenceModel]]]:
        """Return models by the mistake that they make; none if the drafts of some text are not known."""
        if not all(self._steps.values()):
            return {}
        return {told: partial(self._model, mistake) for told, mistake in TREE_MISTAKES.items()}

    def behind(self, wrong: Mapping[Text, int]) -> str:
        """Return the last paths that were accepted before the first wrong tokens of texts, to follow a message.

        Args:
            wrong: place of the first wrong token by text.
        """
        last: Counter[Ranks] = Counter()
        for text, place in wrong.items():
            known = len(text[0]) + place
            paths = [s.accepted for s in self._steps[text] if s.accepted and s.root + len(s.accepted) < known]
            if not paths:
                return ""
            last[self._paths[paths[-1][-1]]] += 1
        told = " and ".join(
            f"({', '.join(map(str, path))}) in {count} text{'s' * (count > 1)}" for path, count in sorted(last.items())
        )
        return f"; the last path that was accepted before the first wrong token has the ranks {told}" if last else ""

    def _steps_of(self, text: Text, result: GenerationResult) -> tuple[TreeStep, ...]:
        ids = [*text[0], *text[1]]
        found, root = [], len(text[0]) - 1
        for step in result.steps:
            if root >= len(ids) - 1:
                break
            nodes = self._paths[: step.drafted]
            tokens = self._drafted(ids[: root + 1], nodes)
            accepted: list[int] = []
            for following in ids[root + 1 : root + 1 + step.accepted]:
                above = nodes[accepted[-1]] if accepted else ()
                node = (n for n, path in enumerate(nodes) if path[:-1] == above and tokens[n] == following)
                if (number := next(node, None)) is None:
                    return ()
                accepted.append(number)
            found.append(TreeStep(root, tokens, tuple(accepted)))
            root += step.accepted + 1
        return tuple(found)

    def _drafted(self, known: Sequence[int], nodes: Sequence[Ranks]) -> tuple[int, ...]:
        """Return the drafter's tokens of the nodes behind a text."""
        tokens: dict[Ranks, int] = {}
        falling: dict[Ranks, Array] = {}
        for path in nodes:
            above = path[:-1]
            if above not in falling:
                branch = [tokens[path[:n]] for n in range(1, len(path))]
                rows = reference_model(self._drafter).logits((*known, *branch), (0,))
                falling[above] = np.argsort(-rows[0], kind="stable")
            tokens[path] = int(falling[above][path[-1]])
        return tuple(tokens[path] for path in nodes)

    def _model(self, mistake: str) -> list[ReferenceModel]:
        exact, single = (partial(self._rows, mistake, dtype) for dtype in (torch.float64, torch.float32))
        return [ReferenceModel(exact, single)]

    def _rows(self, mistake: str, dtype: torch.dtype, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        """Return the logits [emitted, V] of a target with a mistake."""
        ids, positions = list(prompt[:-1]), list(range(len(prompt) - 1))
        kept = list(range(len(prompt) - 1))
        """Row whose keys are at each place."""
        seen: list[list[int]] = [[*range(n + 1)] for n in kept]
        chosen: list[int] = []
        """Rows that the emitted tokens are chosen from."""
        depths = [len(path) for path in self._paths]
        text = [*prompt, *tokens]
        for step in self._steps[prompt, tokens]:
            root = len(ids)
            ids.append(text[step.root])
            positions.append(step.root)
            seen.append([*kept[: step.root], root])
            nodes = range(len(step.tokens))
            for n in nodes:
                ids.append(step.tokens[n])
                positions.append(step.root + (n + 1 if mistake == PLACES else depths[n]))
                above = nodes[: n + 1] if mistake == FOREIGN else [m for m in nodes if self._is_above(m, n)]
                seen.append([*kept[: step.root], root, *(root + 1 + m for m in above)])
            path = [root + 1 + n for n in step.accepted]
            stay = mistake == UNMOVED or (mistake == LONE and len(path) == 1)
            kept += [root, *(range(root + 1, root + 1 + len(path)) if stay else path)]
            chosen += [root, *path]
        mask = torch.full((len(ids), len(ids)), float("-inf"), dtype=dtype)
        for row, columns in enumerate(seen):
            mask[row, columns] = 0
        with quiet():
            output = model(self._target, dtype)(
                torch.tensor([ids]),
                attention_mask=mask[None, None],
                position_ids=torch.tensor([positions]),
                use_cache=False,
            )
        rows: Array = output.logits[0, chosen[: len(tokens)]].double().numpy()
        return rows

    def _is_above(self, node: int, other: int) -> bool:
        """Return True for a node's ancestors and the node itself."""
        path = self._paths[node]
        return self._paths[other][: len(path)] == path
