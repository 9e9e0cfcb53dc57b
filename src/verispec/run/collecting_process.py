"""The program of the fork server: pytest, without garbage collection until the suites are collected.

Collections while torch and the suites are imported find nothing and take a sixth of the time.
"""

from __future__ import annotations

import gc


def main() -> int:
    """Run pytest with the arguments of the command line; return its exit code."""
    gc.disable()
    import pytest

    return pytest.main()


if __name__ == "__main__":
    raise SystemExit(main())
