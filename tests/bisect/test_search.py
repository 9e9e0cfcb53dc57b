"""The search finds the first bad revision of any graph with few tests, and rejects wrong endpoints."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version
from toy_git import ToyRepository

from verispec import exits
from verispec.bisect import GitHistory, ReleaseHistory, Revision, RevisionResult, search
from verispec.errors import VerispecError

Workshop = Callable[[], ToyRepository]


def ancestors(parents: Sequence[Sequence[int]]) -> list[set[int]]:
    """Every commit's ancestors, itself included."""
    found: list[set[int]] = []
    for number, origins in enumerate(parents):
        found.append({number}.union(*(found[origin] for origin in origins)))
    return found


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Commits from one root, some of them merges; the last one joins all loose ends."""
    size = draw(st.integers(2, 24))
    parents: list[list[int]] = [[]]
    for number in range(1, size):
        origins = st.lists(st.integers(max(0, number - 6), number - 1), min_size=1, max_size=3, unique=True)
        parents.append(draw(origins))
    loose = set(range(size)) - {origin for origins in parents for origin in origins}
    return [*parents, sorted(loose)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    numbers = iter(range(10_000))
    folder = tmp_path_factory.mktemp("graphs")
    return lambda: ToyRepository(folder / str(next(numbers)))


@pytest.fixture(scope="module")
def thousand(workshop: Workshop) -> tuple[GitHistory, dict[str, int]]:
    """Return a line of a thousand commits, which no test changes, and the places of their names."""
    toy = workshop()
    names = toy.graph([[], *([number] for number in range(999))])
    return GitHistory(toy.folder), {name: number for number, name in enumerate(names)}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), data=st.data())
def test_the_first_bad_commit_of_any_graph_is_found(
    graph: list[list[int]], data: st.DataObject, workshop: Workshop
) -> None:
    toy = workshop()
    names = toy.graph(graph)
    older = ancestors(graph)
    culprit = data.draw(st.integers(1, len(graph) - 1), "culprit")
    untold = data.draw(st.sets(st.integers(1, len(graph) - 2)) if len(graph) > 2 else st.just(set()), "untold")
    asked: list[str] = []

    def judge(name: str) -> RevisionResult:
        asked.append(name)
        number = names.index(name)
        if number in untold:
            return RevisionResult.CANNOT_TELL
        return RevisionResult.BAD if culprit in older[number] else RevisionResult.GOOD

    result = search(GitHistory(toy.folder), names[0], names[-1], judge)
    assert names[culprit] in result.candidates
    assert len(asked) == len(set(asked))
    if not untold:
        assert result.first_bad == names[culprit]
    assert {names.index(name) for name in result.candidates[:-1]} <= untold


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), data=st.data(), parallel=st.integers(2, 5))
def test_a_parallel_search_has_the_answer_of_the_serial_one(
    graph: list[list[int]], data: st.DataObject, parallel: int, workshop: Workshop
) -> None:
    toy = workshop()
    names = toy.graph(graph)
    older = ancestors(graph)
    culprit = data.draw(st.integers(1, len(graph) - 1), "culprit")
    untold = data.draw(st.sets(st.integers(1, len(graph) - 2)) if len(graph) > 2 else st.just(set()), "untold")
    asked: list[str] = []

    def judge(name: str) -> RevisionResult:
        asked.append(name)
        number = names.index(name)
        if number in untold:
            return RevisionResult.CANNOT_TELL
        return RevisionResult.BAD if culprit in older[number] else RevisionResult.GOOD

    serial = search(GitHistory(toy.folder), names[0], names[-1], judge)
    one_by_one = len(asked)
    asked.clear()
    result = search(GitHistory(toy.folder), names[0], names[-1], judge, parallel=parallel)
    assert (result.candidates, result.verdicts) == (serial.candidates, serial.verdicts)
    assert len(asked) == len(set(asked)) == result.tested
    assert result.rounds < one_by_one, "good and bad are tested together at least"
    assert result.tested <= result.rounds * parallel


@pytest.mark.parametrize(("parallel", "parts"), [(1, 2), (3, 4), (7, 8)])
@pytest.mark.parametrize("culprit", [1, 400, 999])
def test_parallel_tests_save_rounds(
    culprit: int, parallel: int, parts: int, thousand: tuple[GitHistory, dict[str, int]]
) -> None:
    """A round of three tests splits what is left in four, a round of seven in eight."""
    history, place = thousand
    names = list(place)
    result = search(
        history,
        names[0],
        names[-1],
        lambda name: RevisionResult.BAD if place[name] >= culprit else RevisionResult.GOOD,
        parallel=parallel,
    )
    assert result.first_bad == names[culprit]
    assert result.rounds <= math.ceil(math.log(999, parts)) + 2


def test_parallel_tests_run_side_by_side() -> None:
    """Each waits for all others of its round, which one by one would never come."""
    together = threading.Barrier(3, timeout=60)

    def judge(name: str) -> RevisionResult:
        together.wait()
        return RevisionResult.BAD if name >= "k" else RevisionResult.GOOD

    line = Line("abcdefghijklmnopqrs")
    result = search(line, "a", "s", judge, parallel=3)  # type: ignore[arg-type]
    assert result.first_bad == "k"


@pytest.mark.parametrize("culprit", [1, 2, 400, 511, 998, 999])
def test_a_thousand_commits_take_ten_verdicts(culprit: int, thousand: tuple[GitHistory, dict[str, int]]) -> None:
    history, place = thousand
    names = list(place)
    result = search(
        history,
        names[0],
        names[-1],
        lambda name: RevisionResult.BAD if place[name] >= culprit else RevisionResult.GOOD,
    )
    assert result.first_bad == names[culprit]
    assert len(result.verdicts) <= math.ceil(math.log2(999)) + 2


def test_a_run_of_commits_that_cannot_be_told_is_left_quickly(workshop: Workshop) -> None:
    toy = workshop()
    names = toy.graph([[], *([number] for number in range(299))])
    place = {name: number for number, name in enumerate(names)}

    def judge(name: str) -> RevisionResult:
        if 100 <= place[name] < 200:
            return RevisionResult.CANNOT_TELL
        return RevisionResult.BAD if place[name] >= 250 else RevisionResult.GOOD

    result = search(GitHistory(toy.folder), names[0], names[-1], judge)
    assert result.first_bad == names[250]
    assert list(result.verdicts.values()).count(RevisionResult.CANNOT_TELL) < 10


class Line:
    """A history that is a line of letters."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def candidates(self, good: Sequence[str], bad: str) -> Sequence[str]:
        first = max(map(self.letters.index, good)) + 1
        return self.letters[first : self.letters.index(bad) + 1]

    def forks(self, good: str, bad: str) -> Sequence[str]:
        del good, bad
        return ()

    def describe(self, name: str) -> Revision:
        return Revision(name, name)


@pytest.mark.parametrize(
    ("verdicts", "code", "exit_code"),
    [
        ({"a": "good", "d": "good"}, "V-BIS-BAD-IS-GOOD", exits.USAGE),
        ({"a": "bad", "d": "bad"}, "V-BIS-GOOD-IS-BAD", exits.USAGE),
        ({"a": "good", "d": "cannot tell"}, "V-BIS-END-UNKNOWN", exits.CANNOT_TELL),
        ({"a": "cannot tell", "d": "bad"}, "V-BIS-END-UNKNOWN", exits.CANNOT_TELL),
    ],
)
def test_ends_that_are_not_what_they_are_said_to_be(verdicts: dict[str, str], code: str, exit_code: int) -> None:
    with pytest.raises(VerispecError, match=code) as caught:
        search(Line("abcd"), "a", "d", lambda name: RevisionResult(verdicts[name]))  # type: ignore[arg-type]
    assert caught.value.exit_code == exit_code


def test_what_cannot_be_told_is_not_called_found() -> None:
    verdicts = {"a": "good", "b": "cannot tell", "c": "cannot tell", "d": "bad"}
    result = search(Line("abcd"), "a", "d", lambda name: RevisionResult(verdicts[name]))  # type: ignore[arg-type]
    assert result.first_bad is None
    assert result.candidates == ("b", "c", "d")


def test_good_on_another_branch_is_judged_where_the_branches_parted(workshop: Workshop) -> None:
    """0 - 1 - 2 - 3 (bad), and 1 - 4 (good): the fork 1 decides."""
    toy = workshop()
    names = toy.graph([[], [0], [1], [2], [1]])

    def judging(bad: set[int]) -> Callable[[str], RevisionResult]:
        return lambda name: RevisionResult.BAD if names.index(name) in bad else RevisionResult.GOOD

    history = GitHistory(toy.folder)
    assert search(history, names[4], names[3], judging({2, 3})).first_bad == names[2]
    with pytest.raises(VerispecError, match="V-BIS-FIXED"):
        search(history, names[4], names[3], judging({0, 1, 2, 3}))
    with pytest.raises(VerispecError, match="V-BIS-SWAPPED"):
        search(history, names[3], names[1], judging({1}))


def test_histories_without_a_common_commit(workshop: Workshop) -> None:
    toy = workshop()
    names = toy.graph([[], [], [0], [2]])
    with pytest.raises(VerispecError, match="V-BIS-UNRELATED") as caught:
        search(GitHistory(toy.folder), names[1], names[0], lambda name: RevisionResult.BAD)
    assert "unshallow" not in str(caught.value)


def test_a_shallow_clone_says_so(workshop: Workshop) -> None:
    toy = workshop()
    names = toy.graph([[], [0], [1], [0]])
    toy.git("branch", "-D", "graph0", "graph1")
    toy.git("clone", "-q", "--bare", "--depth", "1", "--no-single-branch", f"file://{toy.folder}", "shallow.git")
    history = GitHistory(toy.folder / "shallow.git")
    with pytest.raises(VerispecError, match="unshallow"):
        history.resolve(names[0])
    with pytest.raises(VerispecError, match="unshallow"):
        history.forks(history.resolve(names[3]), history.resolve(names[2]))


def test_progress_names_what_is_judged() -> None:
    told: list[str] = []
    search(
        Line("abcd"),  # type: ignore[arg-type]
        "a",
        "d",
        lambda name: RevisionResult.GOOD if name < "c" else RevisionResult.BAD,
        lambda what, done, total: told.append(what),
    )
    assert told[:2] == ["testing d", "testing a"]


def test_a_commit_is_described_with_author_and_date(workshop: Workshop) -> None:
    toy = workshop()
    toy.commit({"a.py": ""}, "first")
    revision = GitHistory(toy.folder).describe(toy.git("rev-parse", "HEAD"))
    assert (revision.author, revision.date) == ("Ada <ada@example.org>", "2023-11-14 22:14+00:00")
    assert revision.subject == "first"


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> None:
    order = ("0.9", "0.18.1", "0.19.0", "0.19.1", "0.20.0rc1", "0.20.0", "0.20.1", "0.20.2")
    known = dict.fromkeys(map(Version, order), "2026-01-02")
    monkeypatch.setattr("verispec.bisect.history.versions", lambda project: known)


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize("first_bad", ["0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2"])
def test_releases_are_searched_in_the_order_of_versions(first_bad: str) -> None:
    history = ReleaseHistory("vllm", "0.18.1", "0.20.2")
    asked: list[str] = []

    def judge(name: str) -> RevisionResult:
        asked.append(name)
        return RevisionResult.BAD if Version(name) >= Version(first_bad) else RevisionResult.GOOD

    result = search(history, history.resolve("0.18.1"), history.resolve("0.20.2"), judge)
    assert result.first_bad == first_bad
    assert "0.20.0rc1" not in asked
    assert result.total == 5


@pytest.mark.usefixtures("releases")
def test_previews_are_searched_where_an_end_is_one() -> None:
    history = ReleaseHistory("vllm", "0.20.0rc1", "0.20.2")
    assert set(history.candidates(["0.20.0rc1"], "0.20.2")) == {"0.20.0", "0.20.1", "0.20.2"}
    assert "0.20.0rc1" in ReleaseHistory("vllm", "0.19.1", "0.20.0rc1").candidates(["0.19.1"], "0.20.0rc1")


@pytest.mark.usefixtures("releases")
def test_releases_in_the_wrong_order_or_unknown() -> None:
    history = ReleaseHistory("vllm", "0.20.2", "0.19.0")
    with pytest.raises(VerispecError, match="V-BIS-SWAPPED"):
        history.forks("0.20.2", "0.19.0")
    with pytest.raises(VerispecError, match="V-IDX-NO-RELEASE"):
        history.resolve("0.19.7")
    with pytest.raises(VerispecError, match="V-IDX-VERSION"):
        history.resolve("main")
