"""Fuzz the readers of the static checker: every input gives a file summary, and none crashes a reader.

Input number N of a seed is always the same, so that a run can be split, and a failure repeated:

    python tools/fuzz_readers --count 1000000 --seed 14
    python tools/fuzz_readers --first 4711 --count 1 --seed 14 --show
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from verispec.static.facts import CRASHED, FileFacts
from verispec.static.readers.extraction import facts
from verispec.static.rules._pages import EXAMPLES

ROOT = Path(__file__).parents[2]
WINDOW = 40
"""Lines of a source file that one input starts from."""

TOKENS = (
    b"( ) [ ] { } , : ; . = == -> ** * @ # \\ ' \" ''' \"\"\" \n \t \0 \r \xff \xc3\xa9 \xef\xbb\xbf < > & | ! ? ~ % ^ "
    b"def class return lambda yield async await import from as if else try except finally with for while del global "
    b"nonlocal match case type None True self cls super() *args **kwargs triton.jit triton.autotune torch.ops "
    b"torch.library setattr sys.modules functools.partial tl.constexpr @triton.jit k[grid](a,b=1) f'{ rb' 0x 1e999 "
    b'TORCH_LIBRARY(a,m){ m.def( m.impl( #if #endif #else #define R"( template< Tensor(a!) -> Tensor? int[] const& '
    b"/* //"
).split(b" ")
DEEP = b"(|[|{|-|not |lambda:|a.|a(|a[|{1:|if 1:\n |f'{|#if 1\n|<|{\n".split(b"|")


def sources(pattern: str) -> list[bytes]:
    """Return windows of the project's own files, at most 4 KiB each."""
    found = []
    for path in sorted(ROOT.glob(pattern)):
        lines = path.read_bytes().splitlines(keepends=True)
        found += [b"".join(lines[at : at + WINDOW])[:4096] for at in range(0, len(lines), WINDOW)]
    return found


PYTHON = [example.encode() for example in EXAMPLES.values()]
for places in ("src/verispec/static/**/*.py", "reference/triton/**/*.py", "tests/static/rules/*.py"):
    PYTHON += sources(places)
CPP = [example.encode() for name, example in EXAMPLES.items() if name.startswith("SIG3")]
for places in ("reference/**/*.cpp", "reference/**/*.h", "tests/static/rules/test_ops.py"):
    CPP += sources(places)


def changed(rng: random.Random, originals: list[bytes]) -> bytes:
    """Return an original with one to eight random edits, few in most cases so that many inputs still parse."""
    data = bytearray(rng.choice(originals))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.choice((0, 1, 2, 8, 40, 200)))
        kind = rng.randrange(8)
        if kind == 0:
            data[at:end] = b""
        elif kind == 1:
            data[at:at] = data[at:end] * rng.randint(1, 4)
        elif kind == 2:
            data[at:end] = rng.randbytes(rng.randint(1, 6))
        elif kind == 3:
            other = rng.choice(originals)
            start = rng.randint(0, len(other))
            data[at:end] = other[start : start + rng.randint(1, 200)]
        elif kind == 4:
            lines = bytes(data).splitlines(keepends=True)
            rng.shuffle(lines)
            data = bytearray(b"".join(lines))
        elif kind == 5 and rng.random() < 0.02:
            data[at:end] = rng.choice(DEEP) * rng.choice((50, 300, 3000))
        else:
            data[at:end] = rng.choice(TOKENS)
    return bytes(data)


def made(seed: int, number: int) -> tuple[str, bytes, bool]:
    """Return the name and content of one input, and whether its syntax tree is asked for."""
    rng = random.Random(f"{seed}:{number}")
    path, originals = ("a.cu", CPP) if rng.random() < 0.3 else ("a.py", PYTHON)
    if rng.random() < 0.02:
        return path, rng.randbytes(rng.randint(0, 400)), True
    return path, changed(rng, originals), rng.random() < 0.8


def main() -> int:
    """Run the inputs; exit 1 if a reader crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--show", action="store_true", help="print each input before it is read")
    options = parser.parse_args()
    started = time.process_time()
    seen: Counter[str] = Counter()
    failed = 0
    for number in range(options.first, options.first + options.count):
        path, data, deep = made(options.seed, number)
        if options.show:
            print(number, path, deep, data, flush=True)
        found = facts(path, data, deep=deep, calls=deep)
        assert isinstance(found, FileFacts)
        problem = found.problem[0] if found.problem else "parsed" if found.python or found.cpp else "no syntax tree"
        seen[problem] += 1
        if problem == CRASHED:
            failed += 1
            print(f"input {number}: {found.problem}", file=sys.stderr, flush=True)
    spent = time.process_time() - started
    print(f"seed {options.seed}, inputs {options.first} to {options.first + options.count - 1}: {failed} crashes, "
          f"{dict(seen)}, {spent:.0f} s of processor time")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
