"""Finding the revision or release that brought a fault: a history to search, a probe that tests one revision.

`search` halves the history (`GitHistory` or `ReleaseHistory`) by the results of a probe: `StaticProbe` runs the
static checker in this process, `CaseProbe` runs one case in a process of its own, here or on a cluster (`on_ray`).
"""

from __future__ import annotations

from verispec.bisect.case_probe import CaseProbe
from verispec.bisect.history import GitHistory, History, ReleaseHistory, Revision
from verispec.bisect.search import RevisionResult, SearchResult, search
from verispec.bisect.static_probe import StaticProbe

__all__ = [
    "CaseProbe",
    "GitHistory",
    "History",
    "ReleaseHistory",
    "Revision",
    "RevisionResult",
    "SearchResult",
    "StaticProbe",
    "search",
]
