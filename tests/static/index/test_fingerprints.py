"""A finding keeps its name when lines move and files are renamed, and only then."""

from verispec.static import Finding, Location, MemoryTree, check_tree
from verispec.static.folding import fold

SOURCE = """
import triton

@triton.jit
def k(a):
    pass

def run(a):
    k[(1,)](a, B=1)
"""


def only(sources: dict[str, str | bytes]) -> Finding:
    (finding,) = check_tree(MemoryTree(sources)).findings
    return finding


def test_fingerprint():
    before = only({"p/__init__.py": "", "p/a.py": SOURCE})
    moved = only({"p/__init__.py": "", "p/a.py": "\n\n\n# a comment\n" + SOURCE})
    unpacked = only({"vllm-1.2.3/p/__init__.py": "", "vllm-1.2.3/p/a.py": SOURCE})
    other = only({"p/__init__.py": "", "p/a.py": SOURCE.replace("B=1", "C=1")})
    assert before.fingerprint == moved.fingerprint == unpacked.fingerprint
    assert before.location != moved.location
    assert other.fingerprint != before.fingerprint


def test_json_round_trip():
    finding = only({"p/__init__.py": "", "p/a.py": SOURCE})
    assert Finding.from_json(finding.to_json()) == finding


def test_every_faulty_call_is_a_finding_of_its_own_with_one_cause():
    again = "\ndef again(a):\n    k[(1,)](a, B=2)\n    k[(1,)](a, B=3)\n"
    findings = check_tree(MemoryTree({"p/a.py": SOURCE + again})).findings
    assert [finding.location.line for finding in findings] == [9, 12, 13]
    assert len({finding.fingerprint for finding in findings}) == 3
    (folded,) = fold(findings)
    assert folded.location.line == 9
    assert set(folded.also) == {finding.fingerprint for finding in findings[1:]}


def test_other_fingerprints_stay_when_an_earlier_function_gains_a_fault():
    """A second fault elsewhere must not rename the first, or both would look new."""
    before = only({"p/a.py": SOURCE})
    earlier = SOURCE.replace("def run", "def early(a):\n    k[(1,)](a, B=1)\n\ndef run")
    assert before.fingerprint in {f.fingerprint for f in check_tree(MemoryTree({"p/a.py": earlier})).findings}


def test_findings_at_one_line_with_and_without_an_end() -> None:
    """The end of a line does not decide the order: two rules may report one place, and only one knows its end."""
    places = [Location("a.py", 3, end_line=4), Location("a.py", 3), Location("a.py", 2, end_line=9)]
    assert sorted(places) == [places[2], places[0], places[1]]
    assert places[0] == places[1]
