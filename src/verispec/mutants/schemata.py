"""Build every fault of the C++ kernels into one extension, selected by number while it runs.

Each alternative stands beside the original behind a switch, on a line of its own, so that a compiler error names
the alternatives that do not compile; those are dropped and the build is repeated.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verispec.errors import VerispecError
from verispec.mutants import operators_cpp
from verispec.mutants.cpp_sites import Alternative, Site
from verispec.mutants.layers import Layer
from verispec.mutants.model import ALWAYS, Mutant
from verispec.reference import contracts

TRIGGERS: Final = (
    ALWAYS,
    "request >= 64",
    "request >= 65536",
    "step >= 2",
    "element >= 1024",
    "thread > 0",
    "repeated",
)
"""Conditions of a fault, on the index of the outermost loop, of the innermost, the thread, or the calls so far."""

LINES_PER_ERROR: Final = 2
"""Maximum distance in lines of the compiler's error from the alternative that causes it."""

PRELUDE: Final = """\
// Switches of the mutants; included before everything else.
#pragma once
#include <omp.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>
namespace verispec_mutants {
constexpr int kOff = -1, kCover = -2;
inline int active = kOff;
inline int trigger = 0;
inline unsigned char reached[MUTANT_COUNT];  // one bit for each trigger
inline std::array<int, MUTANT_COUNT> calls;
inline bool holds(int when, int64_t outer, int64_t inner, int number) {
  switch (when) {
    case 1: return outer >= 64;
    case 2: return outer >= 65536;
    case 3: return inner >= 2;
    case 4: return inner >= 1024;
    case 5: return omp_get_thread_num() > 0;
    case 6: return calls[number] >= 100 || calls[number]++ >= 100;
    default: return true;
  }
}
// Indices, plus one, from which a switch reaches what is not recorded yet; of the thread 0 and of the others. Most
// evaluations reach nothing new, so that two comparisons have to tell it.
struct Ends {
  int64_t outer, inner;
};
inline std::array<std::array<Ends, MUTANT_COUNT>, 2> unseen;
inline bool is_worker() {
  static thread_local signed char known = -1;
  if (known < 0) known = omp_get_thread_num() > 0;
  return known;
}
__attribute__((noinline, cold)) inline bool look(int number, int64_t outer, int64_t inner) {
  if (active != kCover) return holds(trigger, outer, inner, number);
  const unsigned char known = reached[number];
  unsigned char now = known;
  for (int when = 0; when < 7; ++when) {
    if (!(known >> when & 1)) now |= holds(when, outer, inner, number) << when;
  }
  if (now != known) reached[number] = now;
  if (now >> 6 & 1) {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    unseen[is_worker()][number] = {now >> 1 & 1 ? (now >> 2 & 1 ? kNone : 65537) : 65,
                                   now >> 3 & 1 ? (now >> 4 & 1 ? kNone : 1025) : 3};
  }
  return false;
}
inline bool on(int number, int64_t outer, int64_t inner) {
  if (__builtin_expect(active == kOff, 1)) return false;
  if (active != kCover) return active == number && look(number, outer, inner);
  const Ends& ends = unseen[is_worker()][number];
  return (outer + 1 >= ends.outer || inner + 1 >= ends.inner) && look(number, outer, inner);
}
// Values of the expression at its last and at its first evaluation.
template <int number, class T> T previous(T now) {
  static thread_local T before = now;
  const T was = before;
  before = now;
  return was;
}
template <int number, class T> T first(T now) {
  static T kept = now;
  return kept;
}
// A local that outlives its block, and one that all threads share.
template <int number, class T> T& kept(T& own) {
  static thread_local T local = own;
  if constexpr (!std::is_arithmetic_v<T>) local = own;
  return local;
}
template <int number, class T> T& shared(T& own) {
  static T common = own;
#pragma omp critical(verispec_mutants_shared)
  if constexpr (!std::is_arithmetic_v<T>) common = own;
  return common;
}
template <int number, class T> std::vector<T>& kept(std::vector<T>& own) {
  static thread_local std::vector<T> local;
  local.resize(std::max(local.size(), own.size()));
  return local;
}
template <int number, class T> std::vector<T>& shared(std::vector<T>& own) {
  static std::vector<T> common;
#pragma omp critical(verispec_mutants_shared)
  common.resize(std::max(common.size(), own.size()));
  return common;
}
// A tensor read as if it were dense, column major, or of narrower elements.
template <class T> T packed(T t) {
  t.stride[2] = 1, t.stride[1] = t.shape[2], t.stride[0] = t.shape[1] * t.shape[2];
  return t;
}
template <class T> T transposed(T t) {
  std::swap(t.stride[0], t.stride[1]);
  return t;
}
template <class T> T narrow(T t) {
  using Type = decltype(t.type);
  if (t.type == Type::int64) t.type = Type::int32;
  else if (t.type == Type::float64) t.type = Type::float32;
  else if (t.type == Type::float16) t.type = Type::bfloat16;
  else if (t.type == Type::bfloat16) t.type = Type::float16;
  return t;
}
}  // namespace verispec_mutants
extern "C" __attribute__((visibility("default"), used)) inline void verispec_mutants_select(int number, int trigger) {
  verispec_mutants::active = number;
  verispec_mutants::trigger = trigger;
}
extern "C" __attribute__((visibility("default"), used)) inline unsigned char* verispec_mutants_reached() {
  return verispec_mutants::reached;
}
extern "C" __attribute__((visibility("default"), used)) inline void verispec_mutants_forget() {
  std::fill_n(verispec_mutants::reached, MUTANT_COUNT, 0);
  verispec_mutants::unseen = {};
}
"""


FLAGS: Final = '-O1 -DVERISPEC_NO_CLONES -include "${CMAKE_SOURCE_DIR}/mutants.h"'
"""Options of the compiler instead of the build's own: faster to compile, and without copies for other processors."""

UNCONDITIONAL: Final = (ALWAYS, "thread > 0", "repeated")


def triggers_of(mutant: Mutant) -> tuple[str, ...]:
    """Return the conditions under which a fault can act.

    A kept value has no condition, a fault outside of loops has none on an index, and no place has those that cannot
    hold there.
    """
    if mutant.operator in ("stale", "shared", "parallel"):
        return (ALWAYS,)
    possible = TRIGGERS if mutant.loops else UNCONDITIONAL
    return tuple(trigger for trigger in possible if trigger not in mutant.never)


@dataclass(frozen=True, slots=True)
class Schemata:
    """A built extension with every fault in it."""

    extension: Path
    mutants: tuple[Mutant, ...]
    """Every fault without a trigger; `Mutant.number` is its switch."""
    count: int
    """Switches, those that did not compile included."""


def build(layer: Layer, csrc: Path, cmake_lists: Path, folder: Path) -> Schemata:
    """Return the extension of the kernels in `csrc` with all faults of a layer, built in `folder` where it is not yet.

    Args:
        layer: layer whose files get faults.
        csrc: The folder of the kernels' sources.
        cmake_lists: Their CMakeLists.txt.
        folder: folder of the builds; each state of the sources has a folder of its own.

    Raises:
        VerispecError: V-MUT-BUILD when the kernels cannot be built, for a reason other than a mutant.
    """
    users = _users(csrc)
    ops = set(contracts.names())
    files = [p for p in sorted(csrc.iterdir()) if (p.name in layer.files if layer.files else ops & set(users[p.name]))]
    headers = "\n".join(path.read_text(encoding="utf-8") for path in sorted(csrc.glob("*.h")))
    found = {path.name: operators_cpp.sites(path.read_bytes(), headers) for path in files}
    count = number_alternatives(found)
    digest = hashlib.sha256(f"{PRELUDE}{FLAGS}".encode() + cmake_lists.read_bytes())
    for path in sorted(csrc.iterdir()):
        text = rewrite(path.read_bytes(), found[path.name], set())[0] if path.name in found else path.read_text()
        digest.update(f"{path.name} {text}".encode())
    tree = folder / digest.hexdigest()[:16]
    listed = tree / "dropped.json"
    if not listed.exists():
        print(f"building the kernels with {count:,} faults, which takes minutes", file=sys.stderr, flush=True)
        _make(csrc, cmake_lists, tree, files, found, count)
    dropped = set(json.loads(listed.read_text()))
    (extension,) = (tree / "reference").glob("_csrc*.so")
    mutants = [
        mutant
        for path in files
        for mutant in mutants_of(
            layer.name, path, found[path.name], users[path.name] if layer.op_files else (), dropped
        )
    ]
    return Schemata(extension, tuple(mutants), count)


def number_alternatives(found: Mapping[str, Sequence[Site]]) -> int:
    """Give every alternative its switch, and return the number of switches."""
    alternatives = [a for sites in found.values() for site in sites for a in site.alternatives]
    for number, alternative in enumerate(alternatives):
        alternative.number = number
    return len(alternatives)


def _make(
    csrc: Path,
    cmake_lists: Path,
    tree: Path,
    files: Sequence[Path],
    found: Mapping[str, Sequence[Site]],
    count: int,
) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    copies = tree / "reference/csrc"
    shutil.copytree(csrc, copies)
    text = cmake_lists.read_text().replace("-Wall -Wextra", "-w -fmax-errors=0 -ftemplate-backtrace-limit=0")
    text = text.replace("PRIVATE $<$<CONFIG:Release>:-O3>", f"PRIVATE {FLAGS}")
    (tree / "CMakeLists.txt").write_text(text)
    prelude = PRELUDE.replace("MUTANT_COUNT", str(max(count, 1)))
    (tree / "mutants.h").write_text(prelude)
    # The switches come before every other header, so that none may be compiled before them.
    options = ["-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    _run("cmake", "-S", str(tree), "-B", str(tree / "build"), "-G", "Ninja", *options)
    dropped: set[int] = set()
    for _ in range(12):
        lines = {}
        for path in files:
            text, lines[path.name] = rewrite(path.read_bytes(), found[path.name], dropped)
            if (copies / path.name).read_text() != text:
                (copies / path.name).write_text(text)
        done = subprocess.run(
            ["cmake", "--build", str(tree / "build"), "--", "-k", "0"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
        wrong = blamed(done.stdout + done.stderr, lines) - dropped
        if not wrong:
            raise _cannot_build(done.stdout + done.stderr)
        dropped |= wrong
    else:
        raise _cannot_build(done.stdout + done.stderr)
    (tree / "dropped.json").write_text(json.dumps(sorted(dropped)))


def mutants_of(
    layer: str, path: Path, sites: Sequence[Site], ops: tuple[str, ...], dropped: set[int]
) -> Iterator[Mutant]:
    """Yield the mutants at the sites of a layer's file, one for each alternative that is not in `dropped`."""
    lines = path.read_text().splitlines()
    for site in sites:
        for alternative in site.alternatives:
            if alternative.number not in dropped:
                after = alternative.text or "(nothing)"
                text = lines[site.line - 1].strip()
                yield Mutant(
                    layer, path.name, site.line, site.column, alternative.operator, site.before, after, text,
                    alternative.number, ops, loops=alternative.loops, never=alternative.never,
                )  # fmt: skip


def _users(csrc: Path) -> dict[str, tuple[str, ...]]:
    """Return the ops whose kernel uses each file: its own, or those of all files that include a header."""
    includes = {p.name: re.findall(r'#include "(\w+\.h)"', p.read_text()) for p in csrc.iterdir()}
    users: dict[str, set[str]] = {name: set() for name in includes}

    def use(name: str, op: str) -> None:
        if name in users and op not in users[name]:
            users[name].add(op)
            for header in includes[name]:
                use(header, op)

    for name in includes:
        if name.endswith(".cpp"):
            use(name, Path(name).stem)
    return {name: tuple(sorted(ops)) for name, ops in users.items()}


def rewrite(source: bytes, sites: Sequence[Site], dropped: set[int]) -> tuple[str, dict[int, list[int]]]:
    """Return the source with all alternatives behind switches, and the numbers of the alternatives on each line."""
    live = [s for s in sites if any(a.number not in dropped for a in s.alternatives)]
    # Outer sites first; of equal ranges the later one is inside.
    order = sorted(live, key=lambda s: (s.start, -s.end))
    text = _render(source, 0, len(source), order, dropped)
    lines: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for switch in re.findall(r"verispec_mutants::on\((\d+),", line):
            lines.setdefault(number, []).append(int(switch))
    return text, lines


def _render(source: bytes, start: int, end: int, sites: Sequence[Site], dropped: set[int]) -> str:
    out: list[str] = []
    place, i = start, 0
    while i < len(sites):
        site = sites[i]
        inside = i + 1
        while inside < len(sites) and sites[inside].end <= site.end and sites[inside].start < site.end:
            inside += 1
        out.append(source[place : site.start].decode())
        original = _render(source, site.start, site.end, sites[i + 1 : inside], dropped)
        out.append(_switch(site, original, dropped))
        place, i = site.end, inside
    out.append(source[place:end].decode())
    return "".join(out)


def _switch(site: Site, original: str, dropped: set[int]) -> str:
    outer, inner = (site.loops[0], site.loops[-1]) if site.loops else ("-1", "-1")
    live = [a for a in site.alternatives if a.number not in dropped]

    def on(alternative: Alternative) -> str:
        return f"::verispec_mutants::on({alternative.number}, {outer}, {inner})"

    if site.kind == "pragma":
        return "".join(f"{on(a)} ? ({a.text}) : " for a in live) + f"({original})"
    if site.kind == "expression":
        # A comma before the switch would end a macro's argument; the parentheses keep it whole.
        chosen = "".join(f"\n{on(a)} ? ({a.text.replace('@', str(a.number))}) :" for a in live)
        return f"({chosen}\n({original}))"
    if site.kind == "statement":
        # Two statements at the place of one would leave an unbraced `if` behind.
        cases = "".join(f"\nif ({on(a)}) {{ {a.text} }} else" for a in live)
        return f"{{{cases}\n{{ {original} }} }}"
    name = site.kind.removeprefix("local ")
    own = re.sub(rf"\b{name}\b", f"{name}_own", original, count=1)
    chosen = "".join(f"\n{on(a)} ? {a.text.replace('@', str(a.number))}({name}_own) :" for a in live)
    return f"{own} auto& {name} = {chosen}\n{name}_own;"


def blamed(output: str, lines: dict[str, dict[int, list[int]]]) -> set[int]:
    """Return the alternatives on, or else next to, the lines of the compiler's errors.

    An error inside a header of the library counts for the lines that instantiated it.
    """
    blamed: set[int] = set()
    asked: list[tuple[str, int]] = []
    places: list[tuple[str, int]] = []
    for line in output.splitlines():
        if not (found := re.match(r"\S*?([\w.]+):(\d+):\d+:\s+(required from|(?:fatal )?error)", line)):
            continue
        place = found[1], int(found[2])
        if found[3] == "required from":
            asked.append(place)
            continue
        places += [place] if place[0] in lines else [p for p in asked if p[0] in lines]
        asked = []
    for name, number in places:
        for distance in range(LINES_PER_ERROR + 1):
            near = {number + distance, number - distance}
            switches = {switch for line in near for switch in lines.get(name, {}).get(line, [])}
            if switches:
                blamed |= switches
                break
    return blamed


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _cannot_build(done.stdout + done.stderr)


def _cannot_build(output: str) -> VerispecError:
    return VerispecError(
        "V-MUT-BUILD",
        "the kernels with their mutants cannot be built",
        where="--of cpp",
        cause="\n".join(line for line in output.splitlines() if "error" in line)[:2000] or output[-2000:],
        hint="cmake, ninja and a C++17 compiler are needed; check that the kernels build without mutants",
    )


class Switchboard:
    """The switches of a loaded extension."""

    def __init__(self, extension: Path, count: int) -> None:
        self._library: Any = ctypes.CDLL(str(extension))
        self._library.verispec_mutants_reached.restype = ctypes.POINTER(ctypes.c_ubyte)
        self._count = count

    def select(self, mutant: Mutant) -> None:
        """Switch the mutant on, and every other one off."""
        self._library.verispec_mutants_select(mutant.number, TRIGGERS.index(mutant.trigger))

    def cover(self) -> None:
        """Record which switches are reached; no mutant acts."""
        self._library.verispec_mutants_select(-2, 0)

    def reached(self) -> bytes:
        """Return one byte per switch with one bit per trigger: those reached since the last call."""
        pointer = self._library.verispec_mutants_reached()
        seen = ctypes.string_at(pointer, self._count)
        self._library.verispec_mutants_forget()
        return seen
