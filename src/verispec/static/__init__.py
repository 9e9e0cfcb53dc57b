"""The static checker: every caller of every kernel must bind to every implementation, on every platform.

Nothing here imports, builds or runs engine code. One file's `facts` are a pure function of its bytes and are
cached by content; `link` joins the facts of a tree into an index, and the rules read that index.
"""

from __future__ import annotations

from verispec.static.finding import Finding, Level, Location, Side
from verispec.static.pipeline import Progress, Report, check_tree
from verispec.static.tree import MemoryTree, SourceFile, Tree

__all__ = [
    "Finding",
    "Level",
    "Location",
    "MemoryTree",
    "Progress",
    "Report",
    "Side",
    "SourceFile",
    "Tree",
    "check_tree",
]
