"""The shipped fixtures: whole, as their provenance says, and good enough to test speculative decoding with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

import pytest
import torch
from train_fixtures.measure import measure, measure_draft, measure_parallel_and_mtp
from train_fixtures.parallel_and_mtp import NEVER_IN_TEXT
from train_fixtures.recipe import Recipe

from verispec import fixtures
from verispec.errors import VerispecError
from verispec.reference.models import load_eagle3, load_mtp, load_target, load_tokenizer, mask_token
from verispec.reference.models.checkpoint import read_tensors
from verispec.reference.models.recurrent import recurrent_layers

HEADS = ("eagle3", "eagle3_speculators")
MEGABYTE = 1_000_000


def files() -> dict[str, bytes]:
    paths = (fixtures.FOLDER / "prompts.json", *sorted((fixtures.FOLDER / "models").rglob("*.*")))
    return {path.relative_to(fixtures.FOLDER).as_posix(): path.read_bytes() for path in paths}


def test_every_file_is_the_one_that_was_made() -> None:
    found = {name: hashlib.sha256(data).hexdigest() for name, data in files().items()}
    assert found == fixtures.provenance()["sha256"]


def test_they_are_small() -> None:
    assert sum(map(len, files().values())) < 25 * MEGABYTE


def test_provenance_says_how_to_make_them_again() -> None:
    facts = fixtures.provenance()
    steps = [str(facts["training"][name]["steps"]) for name in ("target", "draft", "eagle3")]
    assert facts["script"] == f"python -m tools.train_fixtures --steps {' '.join(steps)}"
    assert set(facts["versions"]) == {"python", "torch", "transformers", "tokenizers"}
    assert facts["recipe"]["seed"] == Recipe().seed


def test_provenance_says_how_to_make_the_hybrid_again() -> None:
    facts = fixtures.provenance()["hybrid"]
    assert facts["script"] == f"python -m tools.train_fixtures.hybrid --steps {facts['training']['steps']}"
    assert set(facts["versions"]) == set(fixtures.provenance()["versions"])
    assert facts["recipe"]["recurrence"] == json.loads(json.dumps(asdict(Recipe().recurrence)))


@pytest.mark.parametrize("name", ["target", "hybrid"])
def test_a_target_and_the_draft_model_share_a_vocabulary(name: str) -> None:
    target, draft = (load_target(fixtures.model(other)) for other in (name, "draft"))
    assert target.config.vocab_size == draft.config.vocab_size == len(load_tokenizer(fixtures.model(name)))
    texts = [(fixtures.model(other) / "tokenizer.json").read_text() for other in (name, "draft")]
    assert texts[0] == texts[1]
    assert target.generation_config.eos_token_id == target.config.eos_token_id == 0


def test_the_hybrid_has_attention_and_recurrent_layers() -> None:
    hybrid = load_target(fixtures.model("hybrid"))
    assert len(recurrent_layers(hybrid)) == 3
    assert sorted(hybrid.config.layer_types) == ["full_attention", *["linear_attention"] * 3]
    folder = fixtures.model("hybrid")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1.6 * MEGABYTE


@pytest.mark.parametrize("name", HEADS)
def test_the_draft_vocabulary_is_reduced_and_consistent(name: str) -> None:
    tensors = read_tensors(fixtures.model(name))
    ids = torch.arange(len(tensors["d2t"])) + tensors["d2t"]
    assert (ids.diff() > 0).all()
    assert ids[0] >= 0
    assert ids[-1] < len(tensors["t2d"])
    assert torch.equal(tensors["t2d"].nonzero().flatten(), ids)
    assert len(tensors["lm_head.weight"]) == len(ids) < len(tensors["t2d"])
    assert tensors["d2t"].any()


def test_both_formats_hold_one_head() -> None:
    target = load_target(fixtures.model("target"))
    first, second = (load_eagle3(fixtures.model(name), target) for name in HEADS)
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert first.config.aux_layers(10) == second.config.aux_layers(10) == (2, 5, 7)
    assert first.midlayer.norm_before_residual is second.midlayer.norm_before_residual is False


def test_prompts_are_of_one_length_and_survive_the_tokenizer() -> None:
    tokenizer = load_tokenizer(fixtures.model("target"))
    for text in fixtures.prompts():
        ids = tokenizer(text).input_ids
        assert len(ids) == Recipe().measured_prompt
        assert tokenizer.decode(ids) == text


def test_acceptance_is_real() -> None:
    """On every fourth held-back prompt at K = 3; the bounds are what is promised, not what was reached."""
    target, draft = (load_target(fixtures.model(name)) for name in ("target", "draft"))
    head = load_eagle3(fixtures.model("eagle3"), target)
    tokenizer = load_tokenizer(fixtures.model("target"))
    ids = torch.tensor([tokenizer(text).input_ids for text in fixtures.prompts()[::4]])
    measured = measure(target, draft, head, ids, replace(Recipe(), measured_length=64))
    assert measured["draft_model"]["tokens_a_step"] > 2.0
    assert measured["eagle3"]["tokens_a_step"] > 2.2
    for row in measured.values():
        assert row["acceptance_by_position"] == sorted(row["acceptance_by_position"], reverse=True)


def test_acceptance_of_parallel_drafting_and_mtp_is_real() -> None:
    target, draft = (load_target(fixtures.model(name)) for name in ("target", "draft_parallel"))
    head = load_mtp(fixtures.model("mtp"), target)
    tokenizer = load_tokenizer(fixtures.model("target"))
    ids = torch.tensor([tokenizer(text).input_ids for text in fixtures.prompts()[::8]])
    mask = mask_token(fixtures.model("draft_parallel"))
    measured = measure_parallel_and_mtp(target, draft, mask, head, ids, replace(Recipe(), measured_length=64))
    assert measured["parallel"]["tokens_a_step"] > 2.0
    assert measured["mtp"]["tokens_a_step"] > 2.2


def test_provenance_says_how_parallel_drafting_and_mtp_were_made() -> None:
    facts = fixtures.provenance()["parallel_and_mtp"]
    steps = [str(facts["training"][name]["steps"]) for name in ("parallel", "mtp")]
    command = "python -m tools.train_fixtures.parallel_and_mtp --fixtures fixtures"
    assert facts["script"] == f"{command} --steps {' '.join(steps)}"
    assert set(facts["versions"]) == {"python", "torch", "transformers", "tokenizers"}


def test_no_text_has_the_mask_token() -> None:
    tokenizer = load_tokenizer(fixtures.model("target"))
    mask = mask_token(fixtures.model("draft_parallel"))
    assert tokenizer.convert_ids_to_tokens(mask) == NEVER_IN_TEXT
    assert not any(mask in tokenizer(text).input_ids for text in fixtures.prompts())


def test_the_draft_model_is_accepted_and_rejected_by_the_hybrid() -> None:
    hybrid, draft = (load_target(fixtures.model(name)) for name in ("hybrid", "draft"))
    tokenizer = load_tokenizer(fixtures.model("hybrid"))
    ids = torch.tensor([tokenizer(text).input_ids for text in fixtures.prompts()[::8]])
    rates = measure_draft(hybrid, draft, ids, replace(Recipe(), measured_length=48))["acceptance_by_position"]
    assert 0.4 < rates[0] < 0.95
    assert rates == sorted(rates, reverse=True)


def test_an_unknown_fixture_is_named_with_those_that_exist() -> None:
    with pytest.raises(
        VerispecError,
        match=r"V-FIXTURE-NAME.*'eagle'\n.*draft, draft_parallel, eagle3, eagle3_speculators, hybrid, mtp, target",
    ):
        fixtures.model("eagle")
