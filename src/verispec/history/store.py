"""The history as Parquet files: one row per case per run.

A run is identified by its header, so adding the same folder each night adds its new runs only. A run that ``--resume``
completed since then adds the results that it has gained. DuckDB reads the results files itself: a million cases take
seconds, and a line that was cut off by a kill is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from verispec import exits
from verispec.errors import VerispecError
from verispec.run.runfile import FORMAT

if TYPE_CHECKING:
    import duckdb

AT_ONCE = 250
"""Results files that are in memory together: with 4,000 cases each about a gigabyte."""
_LINES = """{
    type: 'VARCHAR', id: 'VARCHAR', outcome: 'VARCHAR', observed: 'VARCHAR', seconds: 'FLOAT',
    failure: 'STRUCT(kind VARCHAR)', format: 'INTEGER', started: 'TIMESTAMP', verispec: 'VARCHAR', seed: 'BIGINT',
    device: 'VARCHAR', budget: 'VARCHAR', command: 'VARCHAR[]', platform: 'JSON',
    engine: 'STRUCT(asked VARCHAR, version VARCHAR, device VARCHAR, digest VARCHAR, details JSON)'
}"""
"""The fields of the lines of a results file that the history keeps."""

_RUNS = """
    SELECT filename, started, engine.asked AS engine, engine.version AS version, engine.device AS device, format,
           md5(concat_ws('\n', engine, verispec, seed, budget, platform)) AS ran,
           md5(concat_ws('\n', started, engine, verispec, seed, budget, platform, device, command)) AS run
    FROM lines WHERE type = 'header'
"""
"""The runs of the files that are added.

`ran` identifies the code that ran: engine, verispec, seed and packages. `run` identifies the run.
"""

_LONGEST = """
    SELECT filename FROM added LEFT JOIN lines USING (filename)
    GROUP BY run, filename
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY count(DISTINCT id) DESC, filename) = 1
"""
"""One file per run: a file may be a copy of another one, from before the run was complete."""

_ROWS = """
    SELECT run, added.started AS started, added.engine AS engine, version, added.device AS device, ran, id AS case_id,
           coalesce(nullif(observed, ''), outcome) AS outcome, failure.kind AS failure, seconds
    FROM lines JOIN added USING (filename) WHERE type = 'case' AND (run, id) NOT IN (SELECT run, case_id FROM known)
    QUALIFY row_number() OVER (PARTITION BY filename, id ORDER BY lines.rowid DESC) = 1
    ORDER BY started, run, case_id
"""


class Store:
    """A folder or URL of Parquet files; new files are added, old ones never change.

    Args:
        place: a folder, or a URL of a file system that fsspec knows (``s3://``, ``gs://``, ``memory://``).

    Raises:
        VerispecError: V-HIST-PACKAGE, duckdb or fsspec is not installed; V-HIST-PLACE, the place cannot be read
            or is a file.
    """

    def __init__(self, place: str) -> None:
        if "://" not in place and Path(place).is_file():
            raise VerispecError(
                "V-HIST-PLACE",
                "this is a file, and a history is a folder",
                where=place,
                hint=f"verispec history FOLDER --add {place}",
            )
        self.place = place.rstrip("/")
        self.database = _connect()
        self._use(self.place)

    @property
    def files(self) -> str:
        """The pattern of the store's files."""
        return f"{self.place}/*.parquet"

    def add(self, patterns: Sequence[str]) -> int:
        """Add the results that the store does not have. Files before one that is refused are added.

        Args:
            patterns: paths or URLs, with ``*`` for many files.

        Returns:
            The number of runs with results that were added.

        Raises:
            VerispecError: V-HIST-READ, a pattern matches no results file; V-RUN-FORMAT, another version wrote one.
        """
        files: dict[str, None] = {}  # a file may match several patterns
        for pattern in patterns:
            self._use(pattern)
            with _reading(pattern):
                found = [row[0] for row in self._rows("SELECT file FROM glob(?) ORDER BY file", [pattern])]
            if not found:
                raise _unreadable(pattern, "no file matches")
            files |= dict.fromkeys(found)
        names = list(files)
        return sum(self._add(names[start : start + AT_ONCE]) for start in range(0, len(names), AT_ONCE))

    def _add(self, files: list[str]) -> int:
        """Add the results of `files` that the store does not have, as one file; return the number of their runs."""
        with _reading(files[0]):
            self.database.execute(
                f"CREATE OR REPLACE TEMP TABLE lines AS SELECT * FROM read_json(?, columns = {_LINES}, filename = true,"
                " format = 'newline_delimited', ignore_errors = true, maximum_object_size = 67108864)",
                [files],
            )
        self.database.execute(f"CREATE OR REPLACE TEMP TABLE added AS {_RUNS}")
        self._require_results_files(files)
        self.database.execute(f"DELETE FROM added WHERE filename NOT IN ({_LONGEST})")
        there = "SELECT run, case_id FROM read_parquet(?) WHERE run IN (SELECT run FROM added)"
        nothing = "SELECT NULL::VARCHAR AS run, NULL::VARCHAR AS case_id WHERE false"
        has_files = self.count() > 0
        self.database.execute(
            f"CREATE OR REPLACE TEMP TABLE known AS {there if has_files else nothing}", [self.files] * has_files
        )
        (number,) = self._rows(f"SELECT count(DISTINCT run) FROM ({_ROWS})")[0]
        if number:
            self._write()
        return int(number)

    def count(self) -> int:
        """Return the number of the store's files."""
        with _reading(self.place):
            return int(self._rows("SELECT count(*) FROM glob(?)", [self.files])[0][0])

    def is_missing(self) -> bool:
        """Return True if the place is a folder of this machine that does not exist."""
        return "://" not in self.place and not Path(self.place).exists()

    def _write(self) -> None:
        if "://" not in self.place:
            with _reading(self.place):
                Path(self.place).mkdir(parents=True, exist_ok=True)
        # DuckDB writes to a temporary name and renames: a cut-off write leaves no file that matches.
        target = f"{self.place}/{uuid4().hex}.parquet".replace("'", "''")
        with _reading(self.place):
            self.database.execute(f"COPY ({_ROWS}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")

    def _require_results_files(self, files: Sequence[str]) -> None:
        if not self._rows("SELECT 1 FROM lines LIMIT 1"):
            raise _unreadable(files[0], "it is empty: its run ended before the engine had started")
        headless = self._rows(
            "SELECT DISTINCT filename FROM lines WHERE filename NOT IN (SELECT filename FROM added) LIMIT 1"
        )
        if headless:
            raise _unreadable(headless[0][0], "its first line is not a header")
        other = self._rows("SELECT filename, format FROM added WHERE format IS DISTINCT FROM ? LIMIT 1", [FORMAT])
        if other:
            raise VerispecError(
                "V-RUN-FORMAT",
                f"the results file has format {other[0][1]}, this verispec reads format {FORMAT}",
                where=other[0][0],
                hint="leave it out, or run again",
                exit_code=exits.CANNOT_TELL,
            )

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.execute(query, list(values)).fetchall()

    def _use(self, place: str) -> None:
        """Let DuckDB read the file system of a URL through fsspec."""
        scheme, separator, _ = place.partition("://")
        if not separator or self.database.filesystem_is_registered(scheme):
            return
        import fsspec

        with _reading(place):
            self.database.register_filesystem(fsspec.filesystem(scheme))


def _connect() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
        import fsspec  # noqa: F401 - asked for here, so that the error names both
    except ImportError as error:
        raise VerispecError(
            "V-HIST-PACKAGE",
            f"{error.name} is not installed",
            where="verispec history",
            hint="pip install 'verispec[history]'",
        ) from error
    return duckdb.connect()


@contextlib.contextmanager
def _reading(place: str) -> Any:
    """Raise V-HIST-PLACE with the reason of any file system or of DuckDB."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, ImportError, ValueError) as error:
        raise VerispecError(
            "V-HIST-PLACE",
            "the history or a results file cannot be read or written",
            where=place,
            cause=str(error).splitlines()[0] if str(error) else type(error).__name__,
            hint="name a folder, or a URL whose fsspec package is installed (s3fs, gcsfs)",
            exit_code=exits.CANNOT_TELL,
        ) from error


def _unreadable(place: str, cause: str) -> VerispecError:
    return VerispecError(
        "V-HIST-READ",
        "not a results file",
        where=place,
        cause=cause,
        hint="a results file comes from: verispec run --engine NAME --out FILE",
    )
