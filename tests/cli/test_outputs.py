"""Every JSON output and every line of a results file matches its published schema; text has its required contents."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from judging import OP, SUITE, THE_ONE, importable, verdict_on
from referencing import Registry, Resource
from run_headers import header

from verispec import exits
from verispec.cli import main
from verispec.cli.repro import _SAID
from verispec.reference import contracts
from verispec.report.explanation import explain
from verispec.report.verdict import summarise
from verispec.run.record import Record
from verispec.run.runfile import Run

SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in resources.files("verispec.report.schemas").iterdir()
    if path.name.endswith(".schema.json")
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
CASE = f"{OP}:EXP-2:dtype=int32;cu=int32"


def answers(document: Any, schema: str) -> Any:
    Draft202012Validator(SCHEMAS[schema], registry=REGISTRY).validate(document)
    return document


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        with importable():
            main(list(words))
        code = exits.GOOD
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], schema: str, *words: str) -> Any:
    return answers(json.loads(command(capsys, *words, "--json")[1]), schema)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    verdict_on("broken_engines:LosesWrites", path)
    return path


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_a_run_file(run_file: Path) -> None:
    kinds = [answers(json.loads(line), "run-file")["type"] for line in run_file.read_text().splitlines()]
    assert (kinds[0], {*kinds[1:-1]}, kinds[-1]) == ("header", {"case"}, "footer")


def test_run_and_report_give_the_same_verdict(
    capsys: pytest.CaptureFixture[str], run_file: Path, tmp_path: Path
) -> None:
    reported = as_json(capsys, "verdict", "report", str(run_file))
    words = ("run", "--engine", "broken_engines:LosesWrites", "--only", SUITE, "--out", str(tmp_path / "again.jsonl"))
    run = as_json(capsys, "verdict", *words)
    for part in ("counts", "table", "causes", "gaps", "exit"):
        assert run[part] == reported[part]


@pytest.mark.parametrize("form", ["text", "markdown", "junit"])
def test_a_report_names_the_cause(capsys: pytest.CaptureFixture[str], run_file: Path, form: str) -> None:
    code, out = command(capsys, "report", str(run_file), "--format", form)
    assert code == exits.GOOD
    assert "EXP-2" in out
    assert str(run_file.parent) not in out, "no path of this machine is in a report"


def test_collect(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, "cases", "run", "--engine", "engine_that_is_never:started", "--only", SUITE, "--collect")
    assert THE_ONE in told["cases"]
    assert command(capsys, "run", "--only", SUITE, "--collect")[1].splitlines() == told["cases"]


def test_cases_that_an_older_results_file_lacks(
    capsys: pytest.CaptureFixture[str], run_file: Path, tmp_path: Path
) -> None:
    """An engine that is not installed here may have made it: it is not started."""
    older = tmp_path / "older.jsonl"
    kept = [line for line in run_file.read_text().splitlines() if json.loads(line).get("id") != THE_ONE]
    older.write_text("\n".join(kept).replace("broken_engines:LosesWrites", "engine_that_is_never:started"))
    assert command(capsys, "run", "--collect", "--resume", str(older)) == (exits.GOOD, f"{THE_ONE}\n")
    assert command(capsys, "run", "--collect", "--resume", str(run_file)) == (exits.GOOD, "")


@pytest.mark.parametrize(
    ("engine", "case", "code", "outcome"),
    [
        ("broken_engines:LosesWrites", CASE, exits.BAD, "fail"),
        ("broken_engines:Segfaults", THE_ONE, exits.BAD, "crash"),
        ("broken_engines:Segfaults", CASE, exits.GOOD, "pass"),
        ("broken_engines:LacksTheOp", CASE, exits.CANNOT_TELL, "unsupported"),
    ],
)
def test_repro(capsys: pytest.CaptureFixture[str], engine: str, case: str, code: int, outcome: str) -> None:
    told = as_json(capsys, "repro", "repro", case, "--engine", engine)
    assert (told["exit"], told["case"]["outcome"], told["case"]["id"]) == (code, outcome, case)


def test_repro_of_a_written_file_answers_its_schema(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The fields of --shrink and --export come with failures alone."""
    files = ("--shrink", str(tmp_path / "small.safetensors"), "--export", str(tmp_path / "test_bug.py"))
    case = "sampler/whole_sampler:WS-1:batch=mixed;draft=present"
    told = as_json(capsys, "repro", "repro", case, "--engine", "small_calls:Stepwise", *files)
    assert told["test_result"].startswith("fails: ")
    assert {*_SAID} - {"saved"} <= SCHEMAS["repro"]["properties"].keys()


def test_repro_shows_what_went_in_and_what_came_out(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = command(capsys, "repro", CASE, "--engine", "broken_engines:LosesWrites")
    assert code == exits.BAD
    for line in (
        "EXP-2  The op writes the output buffer itself",
        "input_ptr          int32 3: 3 5 7",
        "[0]  expected 3, got not written",
        "5 of 5 elements",
        "error  reached in production:",
    ):
        assert line in out


def test_repro_of_no_case_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "repro", "nonsense")[0] == exits.USAGE
    assert command(capsys, "repro", f"{OP}:EXP-2", "--engine", "oracle_engine:OracleEngine")[0] == exits.USAGE


def test_a_device_that_no_engine_has_is_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("--engine", "oracle_engine:OracleEngine", "--device", "banana", "--out", str(tmp_path / "run.jsonl"))
    assert command(capsys, "run", "--only", CASE, *arguments)[0] == exits.USAGE


def test_smoke_takes_one_quick_case_of_every_clause(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "smoke.jsonl"
    told = as_json(capsys, "verdict", "smoke", "--engine", "oracle_engine:OracleEngine", "--out", str(out))
    assert told["exit"] == exits.GOOD
    assert told["header"]["selection"]["smoke"]
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    ids = [line["id"] for line in lines if line["type"] == "case"]
    assert ids and not [case for case in ids if ":ANY-10" in case or "mode=law" in case]
    flat = [name for name in contracts.names() if contracts.load(name).family == "flat"]
    for name in flat:
        assert sum(cell["passed"] for cell in told["table"][name].values()) >= len(contracts.load(name).clauses) - 1
    assert set(told["counts"]) <= {"pass", "unsupported"}


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    told = {row["op"]: row for row in as_json(capsys, "ops", "ops")["ops"]}
    assert set(told) == set(contracts.names())
    expand = told["expand_batch_to_tokens"]
    assert (expand["oracle"], expand["cpu"], expand["triton"], expand["untested"]) == (True, True, True, [])
    text = command(capsys, "ops")[1]
    assert all(any(line.startswith(f"{name} ") for line in text.splitlines()) for name in told)


@pytest.mark.parametrize("name", ["EXP-2", "exp-2", "expand_batch_to_tokens", "SIG101"])
def test_explain(capsys: pytest.CaptureFixture[str], name: str) -> None:
    told = as_json(capsys, "explain", "explain", name)
    assert told["name"].lower() == name.lower()
    assert command(capsys, "explain", name)[1].startswith(told["name"])


def test_a_clause_names_its_tests_and_implementations(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, "explain", "explain", "EXP-2")
    assert "sampler/test_expand_batch_to_tokens.py::test_the_buffer_itself_is_written" in told["tests"]
    assert "reference/csrc/expand_batch_to_tokens.cpp" in told["implementations"]


def test_every_clause_and_op_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints what `explain` returns, whatever the name; it runs for each op alone."""
    for name in contracts.names():
        as_json(capsys, "explain", "explain", name)
        for clause in contracts.load(name).clauses:
            assert answers(json.loads(json.dumps(explain(clause.id))), "explain")["text"] == clause.text


def test_what_cannot_be_explained_has_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["explain", "EXP-22"])
    assert stop.value.code == exits.USAGE
    assert "did you mean EXP-2" in capsys.readouterr().err


def test_known_causes_and_causes_of_several_ops_have_the_schema_of_all() -> None:
    def failing(case: str, **fields: Any) -> Record:
        return Record(f"sampler/{case}", fields.pop("outcome", "fail"), failure={"kind": "value"}, **fields)

    known = failing("philox:PHX-1:k=1", outcome="xfail", observed="fail", issue="https://example.org/1")
    ops = ("compute_slot_mapping:CSM-10", "eagle_prepare_inputs_padded:EPI-7", "expand_batch_to_tokens:EXP-6")
    summary = summarise(Run(header(), [known, *map(failing, ops)], {"complete": True}))
    assert [len(cause.subjects) for cause in (*summary.known, *summary.causes)] == [1, 3]
    document = json.loads(json.dumps(summary.to_json()))
    for part in ("known", "causes"):
        schema = {"$ref": f"{SCHEMAS['verdict']['$id']}#/properties/{part}"}
        Draft202012Validator(schema, registry=REGISTRY).validate(document[part])
