"""Processors, and copies of this process that share its work."""

from __future__ import annotations

import os
import threading


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def can_fork() -> bool:
    """Return True if a copy of this process can share its work: there is a processor for it, and no thread to lose."""
    import multiprocessing

    alone = threading.active_count() == 1
    return alone and processors() > 1 and "fork" in multiprocessing.get_all_start_methods()
