"""A finding keeps its name when lines move and files are renamed, and only then."""

from verispec.static import Finding, MemoryTree, check_tree

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


def test_same_disagreement_twice_is_one_finding_at_its_first_place():
    assert only({"p/a.py": SOURCE + "\ndef again(a):\n    k[(1,)](a, B=2)\n"}).location.line == 9
