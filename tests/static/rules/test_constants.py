"""SIG501: constants that exist twice."""

import pytest

USER = "from engine.a import GREEDY_TEMPERATURE\n"


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"engine/a.py": "GREEDY_TEMPERATURE = 0", "engine/b.py": "GREEDY_TEMPERATURE = -1", "engine/c.py": USER}, 1),
        ({"engine/a.py": "GREEDY_TEMPERATURE = 0", "engine/b.py": "GREEDY_TEMPERATURE: float = 0.0",
          "engine/c.py": USER}, 0),
        ({"engine/a.py": "GREEDY_TEMPERATURE = 0", "engine/b.py": "GREEDY_TEMPERATURE = -1"}, 0),
        ({"engine/a.py": "BLOCK_SIZE = 16", "engine/b.py": "BLOCK_SIZE = 32",
          "engine/c.py": "from engine.a import BLOCK_SIZE\n"}, 0),
        ({"engine/a.py": "GREEDY_TEMPERATURE = 0", "tests/b.py": "GREEDY_TEMPERATURE = -1", "engine/c.py": USER}, 0),
        ({"engine/a.py": "SENTINEL = -0x80000000", "engine/b.py": "SENTINEL = 0x80000000",
          "engine/c.py": "from engine.a import SENTINEL\n"}, 0),
    ],
    ids=["disagree", "agree", "nobody shares it", "a size", "in a test", "same bits"],
)  # fmt: skip
def test_constants(judged, sources, found):
    assert len(judged("SIG501", sources)) == found


def test_plugin_with_a_copy_of_its_own(judged):
    core = {"engine/a.py": "PLACEHOLDER_TOKEN_ID = -1\n", "engine/c.py": "from engine.a import PLACEHOLDER_TOKEN_ID\n"}
    (finding,) = judged("SIG501", {"plugin/x.py": "PLACEHOLDER_TOKEN_ID = 0\n"}, core)
    assert {side.location.path for side in finding.sides} == {"plugin/x.py", "engine/a.py"}
