"""A contract that contradicts itself does not come into being, and those that exist are whole."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest

from verispec.reference import contracts, oracle
from verispec.reference.contracts import Clause, Contract, Role, Scalar, Tensor

OUT = Tensor("out", ("N",), ("int32",), "an output", role=Role.OUT)
CLAUSE = Clause("ABC-1", "Something holds.", "here")


def contract(*params: Tensor | Scalar, clauses: tuple[Clause, ...] = (CLAUSE,), returns: str = "") -> Contract:
    axes = {"N": "tokens", "B": "requests"}
    return Contract("op", "flat", "An op.", axes, params, clauses, returns=returns)


def test_a_sound_contract_is_accepted() -> None:
    sound = contract(OUT, Tensor("x", ("B",), ("int32",), "an input", like="out"), Scalar("n", int, "a size", axis="N"))
    assert sound.prefix == "ABC" and sound.outputs == (OUT,) and sound.param("n").name == "n"


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ((OUT, OUT), "have the same name"),
        ((OUT, Tensor("x", ("Q",), ("int32",), "")), "unknown axis 'Q'"),
        ((OUT, Scalar("n", int, "", axis="Q")), "unknown axis 'Q'"),
        ((OUT, Tensor("x", ("B",), ("int32",), "", like="y")), "unknown tensor 'y'"),
        ((OUT, Scalar("s", int, "", stride_of="y")), "unknown tensor 'y'"),
        ((OUT, Scalar("s", int, "", equals="B+y")), "unknown ['y']"),
        ((OUT, Tensor("x", ("B",), ("int32",), "", within="y")), "unknown tensor 'y'"),
        ((OUT, Tensor("x", ("B",), ("int32",), "", optional=True, required_if="F")), "unknown flag 'F'"),
        ((OUT, Tensor("x", ("B",), ("int32",), "", optional=True, required_with="y")), "unknown tensor 'y'"),
        ((Tensor("x", ("B",), ("int32",), ""),), "writes a tensor or returns something"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(params: tuple[Tensor | Scalar, ...], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        contract(*params)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dtypes": ("int13",)}, "unknown dtypes"),
        ({"dtypes": ()}, "unknown dtypes"),
        ({"dtypes": ("int32",), "production": "int64"}, "production dtype int64"),
        ({"dtypes": ("int32",), "also": ("int64",)}, "production dtype int64"),
        ({"dtypes": ("int32",), "required_if": "F"}, "required_if is for optional"),
        ({"dtypes": ("int32",), "required_with": "y"}, "required_with is for optional"),
        ({"dtypes": ("int32",), "shape": ("B/2",)}, "not an axis expression"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        Tensor(**{"name": "x", "shape": ("B",), "doc": "", **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(("id_", "text"), [("abc-1", "It holds."), ("ABC1", "It holds."), ("ABC-1", "It holds")])
def test_a_malformed_clause_is_refused(id_: str, text: str) -> None:
    with pytest.raises(ValueError, match="clause"):
        Clause(id_, text, "here")


@pytest.mark.parametrize("ids", [("ABC-1", "ABC-1"), ("ABC-1", "DEF-2")])
def test_clause_ids_are_unique_and_share_a_prefix(ids: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="clause ids"):
        contract(OUT, clauses=tuple(Clause(i, "It holds.", "here") for i in ids))


def test_a_clause_decides_outputs_of_its_own_op() -> None:
    with pytest.raises(ValueError, match="unknown outputs \\['x'\\]"):
        contract(OUT, Tensor("x", ("B",), ("int32",), ""), clauses=(replace(CLAUSE, outputs=("out", "x")),))


@pytest.mark.parametrize("name", contracts.names())
def test_a_contract_is_whole(name: str) -> None:
    """Named after its file, numbered without gaps, sourced, and with dtypes that callers really pass."""
    c = contracts.load(name)
    assert c.name == name
    assert [clause.id for clause in c.clauses] == [f"{c.prefix}-{i + 1}" for i in range(len(c.clauses))]
    assert all(clause.source for clause in c.clauses)
    assert all(p.doc for p in c.params)
    assert all(t.production for t in c.tensors if c.family == "flat")
    assert all(contracts.by_clause(clause.id) is c for clause in c.clauses)


def test_prefixes_are_distinct() -> None:
    prefixes = [contracts.load(name).prefix for name in contracts.names()]
    assert len(set(prefixes)) == len(prefixes)


@pytest.mark.parametrize("name", [name for name in contracts.names() if contracts.load(name).params])
def test_an_oracle_takes_the_parameters_of_its_contract(name: str) -> None:
    parameters = inspect.signature(oracle.load(name)).parameters
    assert tuple(parameters) == tuple(p.name for p in contracts.load(name).params)


def test_unknown_names_are_named() -> None:
    with pytest.raises(KeyError, match="no op 'nothing'"):
        contracts.load("nothing")
    with pytest.raises(KeyError, match="no clause 'XYZ-1'"):
        contracts.by_clause("XYZ-1")


@pytest.mark.parametrize("name", contracts.names())
def test_every_op_says_what_a_user_sees_if_it_is_wrong(name: str) -> None:
    of = contracts.load(name)
    said = [text for text in (of.effect, *(clause.effect for clause in of.clauses)) if text]
    assert of.effect or of.family in ("every", "generation", "serving", "signature", "sampler")
    assert all(text[0].islower() and text[-1] not in ".!" and len(text.split()) <= 25 for text in said)
