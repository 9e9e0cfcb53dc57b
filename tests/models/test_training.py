"""The script that makes the fixtures: its text, its measurement, and one whole run in toy sizes."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional
from train_fixtures import corpus, hybrid
from train_fixtures.__main__ import run
from train_fixtures.build import continue_text, frequent, write
from train_fixtures.measure import measure
from train_fixtures.recipe import TINY, Recipe, Recurrence, Shape
from train_fixtures.training import batches
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from verispec import fixtures
from verispec.reference.models import AuxiliaryStates, Eagle3Head, load_eagle3, load_target, load_tokenizer
from verispec.reference.models.recurrent import recurrent_layers


@pytest.fixture(scope="module")
def texts() -> corpus.Corpus:
    return corpus.read_corpus(40)


def test_the_text_is_the_same_twice_and_parts_are_apart(texts: corpus.Corpus) -> None:
    again = corpus.read_corpus(40)
    assert again == texts
    assert len(texts.held_back) == 2
    assert len(texts.validation) == 2
    seen = set(texts.train) | set(texts.validation)
    assert not seen & set(texts.held_back.values())


def test_docstrings_are_read_without_their_indentation() -> None:
    source = 'class A:\n    """One.\n\n    Two.\n    """\n    def f(self):\n        """short"""\n'
    assert list(corpus._docstrings(source)) == ["One.\n\nTwo.\n"]
    assert list(corpus._docstrings("def broken(:")) == []
    ast.parse(source)


def test_tokenizer_and_prompts_are_the_same_twice(texts: corpus.Corpus) -> None:
    first, second = (corpus.train_tokenizer(texts.train, 400) for _ in range(2))
    assert first.to_str() == second.to_str()
    assert first.token_to_id(corpus.END) == 0
    prompts = corpus.cut_prompts(first, texts.held_back, 8, 16)
    assert prompts == corpus.cut_prompts(second, texts.held_back, 8, 16)
    for prompt in prompts:
        assert len(first.encode(prompt["text"]).ids) == 16
        rows = texts.held_back[prompt["file"]].splitlines(keepends=True)
        assert "".join(rows[prompt["line"] - 1 :]).startswith(prompt["text"])


def test_the_stream_ends_every_text() -> None:
    tokenizer = corpus.train_tokenizer(["a b c"], 300)
    stream = corpus.encode(tokenizer, ["a b", "c"]).tolist()
    assert [tokenizer.id_to_token(token) for token in stream] == ["a", "Ġb", corpus.END, "c", corpus.END]


def test_windows_are_the_same_twice() -> None:
    stream = torch.arange(1000)
    first, second = batches(stream, TINY.train_draft, 5), batches(stream, TINY.train_draft, 5)
    for _ in range(3):
        window = next(first)
        assert torch.equal(window, next(second))
        assert torch.equal(window[:, 1:], window[:, :-1] + 1)


def test_the_most_frequent_ids_in_order() -> None:
    stream = torch.tensor([5, 5, 5, 1, 1, 7, 7, 2, 0])
    assert frequent(stream, 9, 3).tolist() == [1, 5, 7]
    assert frequent(stream, 9, 4).tolist() == [0, 1, 5, 7]


class Counting:
    """Stands for a model that writes each token's successor, modulo 4; token 0 is the end of a text."""

    config = LlamaConfig(num_hidden_layers=1)

    def __call__(self, ids: torch.Tensor, **kwargs: object) -> SimpleNamespace:
        return SimpleNamespace(logits=functional.one_hot((ids + 1) % 4, 4).float() * 100)


@pytest.mark.parametrize("sampled", [False, True])
def test_written_text_goes_on_past_an_end(sampled: bool) -> None:
    texts = continue_text(Counting(), torch.tensor([[2], [1]]), 5, sampled)
    assert texts.tolist() == [[2, 3, 0, 1, 2, 3], [1, 2, 3, 0, 1, 2]]


def test_greedy_text_is_transformers_own(target: LlamaForCausalLM) -> None:
    prompts = torch.arange(12).reshape(2, 6)
    settings = GenerationConfig(do_sample=False, max_new_tokens=8, min_new_tokens=8, pad_token_id=0)
    assert torch.equal(continue_text(target, prompts, 8, False), target.generate(prompts, generation_config=settings))


def test_written_text_is_the_same_twice(target: LlamaForCausalLM) -> None:
    recipe = replace(TINY, written_prompt=4, written_length=10)
    stream = write(target, torch.arange(300), 6, recipe, seed=1)
    assert stream.shape == (60,)
    assert torch.equal(stream, write(target, torch.arange(300), 6, recipe, seed=1))


def greedy(model: LlamaForCausalLM, ids: list[int]) -> int:
    return int(model(torch.tensor([ids])).logits[0, -1].argmax())


def test_measured_acceptance_is_that_of_real_chains() -> None:
    """Against speculative decoding written out: draft, verify, go on after the last token that held."""
    recipe = replace(Recipe(), measured_length=12)
    target, draft = (load_target(fixtures.model(name)) for name in ("target", "draft"))
    head = load_eagle3(fixtures.model("eagle3"), target)
    tokenizer = load_tokenizer(fixtures.model("target"))
    prompts = torch.tensor([tokenizer(text).input_ids[:16] for text in fixtures.prompts()[:3]])
    measured = measure(target, draft, head, prompts, recipe)
    end = 16 + 12
    for method in ("draft_model", "eagle3"):
        steps, accepted = 0, [0, 0, 0]
        for prompt in prompts.tolist():
            known = [*prompt, greedy(target, prompt)]
            while len(known) + 3 <= end:  # all drafts lie inside the measured text
                drafts = draft_chain(draft, known) if method == "draft_model" else eagle_chain(target, head, known)
                steps += 1
                for position, token in enumerate(drafts):
                    if greedy(target, known) != token:
                        break
                    known.append(token)
                    accepted[position] += 1
                known.append(greedy(target, known))
        row = measured[method]
        assert row["steps"] == steps
        assert row["acceptance_by_position"] == [round(count / steps, 3) for count in accepted]
        assert row["tokens_a_step"] == round(1 + sum(accepted) / steps, 3)
        assert all(accepted)


def draft_chain(draft: LlamaForCausalLM, known: list[int]) -> list[int]:
    tokens: list[int] = []
    for _ in range(3):
        tokens.append(greedy(draft, known + tokens))
    return tokens


def eagle_chain(target: LlamaForCausalLM, head: Eagle3Head, known: list[int]) -> list[int]:
    """Three drafts after `known`, each from a whole pass of the head over all rows so far."""
    head.set_attn_implementation("sdpa")
    with AuxiliaryStates(target, Recipe().aux_layers) as states:
        target(torch.tensor([known[:-1]]), use_cache=False)
        hidden = head.combine(states.take())
    tokens: list[int] = []
    for _ in range(3):
        ids = torch.tensor([known[1:] + tokens])
        normed, after = head(ids, hidden, torch.arange(ids.shape[1])[None])
        tokens.append(int(head.to_target(head.logits(normed[0, -1]).argmax())))
        hidden = torch.cat((hidden, after[:, -1:]), dim=1)
    return tokens


@pytest.mark.slow
def test_the_whole_script_makes_the_same_checkpoints_twice(tmp_path: Path) -> None:
    recipe = Recipe(
        vocab_size=300, draft_vocab_size=200, max_positions=128, files=30, aux_layers=(2, 4, 5), unrolled=2,
        target=Shape(hidden=32, mlp=32, layers=8, heads=1, kv_heads=1, head_dim=32),
        draft=Shape(hidden=32, mlp=32, layers=1, heads=1, kv_heads=1, head_dim=32),
        train_target=replace(TINY.train_target, steps=2), train_draft=replace(TINY.train_draft, steps=2),
        train_eagle3=replace(TINY.train_eagle3, steps=2),
        written=8, written_prompt=8, written_length=80, prompts=4, measured_prompt=8, measured_length=8,
    )  # fmt: skip
    recipe = replace(
        recipe, hybrid=Shape(hidden=32, mlp=32, layers=2, heads=1, kv_heads=1, head_dim=32),
        recurrence=Recurrence(("linear_attention", "full_attention"), heads=2, state=4, chunk=8),
        train_hybrid=replace(TINY.train_draft, steps=2),
    )  # fmt: skip
    folders = (tmp_path / "first", tmp_path / "second")
    for folder in folders:
        run(recipe, folder)
        hybrid.run(recipe, folder)
    facts, again = (json.loads((folder / "provenance.json").read_text()) for folder in folders)
    assert facts["sha256"] == again["sha256"]
    assert len(facts["sha256"]) == 20
    assert facts["script"].endswith("--steps 2 2 2")
    target = load_target(folders[0] / "models/target")
    load_target(folders[0] / "models/draft")
    load_tokenizer(folders[0] / "models/draft")
    assert len(recurrent_layers(load_target(folders[0] / "models/hybrid"))) == 1
    assert facts["hybrid"]["script"].endswith("--steps 2")
    for name in ("eagle3", "eagle3_speculators"):
        assert len(load_eagle3(folders[0] / "models" / name, target).d2t) == 200
