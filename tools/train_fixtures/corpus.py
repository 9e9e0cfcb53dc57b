"""The text: sources and docstrings of the standard library, in three parts by file; and its tokenizer."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|end|>"
"""Stands between documents and ends a generation; id 0. There is no token that begins a text."""

EXCLUDED = frozenset({"test", "tests", "idle_test", "encodings", "lib2to3", "site-packages", "dist-packages"})
"""Folders that not every installation has, and tables of code pages, which are no text."""

VALIDATION, HELD_BACK, PARTS = 10, 0, 20
"""Of every `PARTS` files one chooses the best checkpoint and one is seen by no training at all."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents by part; `digest` is over names and contents of all files in order."""

    train: list[str]
    validation: list[str]
    held_back: dict[str, str]
    files: int
    digest: str


def read_corpus(limit: int = 0) -> Corpus:
    """Read the standard library of the running interpreter; `limit` > 0 reads only that many files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    train: list[str] = []
    validation: list[str] = []
    held_back: dict[str, str] = {}
    digest = hashlib.sha256()
    names = list(_sources(root))[: limit or None]
    for index, name in enumerate(names):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        digest.update(f"{name}\n{text}".encode())
        if index % PARTS == HELD_BACK:
            held_back[name] = text
        elif index % PARTS == VALIDATION:
            validation.append(text)
        else:
            train += [text, *_docstrings(text)]
    return Corpus(train, validation, held_back, len(names), digest.hexdigest())


def _sources(root: Path) -> Iterator[str]:
    """Yield the source files of the documented modules, relative to `root`, in one order everywhere."""
    for module in sorted(sys.stdlib_module_names - EXCLUDED):
        if (root / f"{module}.py").is_file():
            yield f"{module}.py"
        for path in sorted((root / module).rglob("*.py")):
            if not EXCLUDED & set(path.relative_to(root).parts):
                yield path.relative_to(root).as_posix()


def _docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module that span a line or more, cleaned of their indentation."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and "\n" in text:
                yield text + "\n"


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer; the same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return the texts as one stream of ids, each text followed by `END`."""
    end = tokenizer.token_to_id(END)
    stream: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        stream += encoding.ids
        stream.append(end)
    return torch.tensor(stream)


def cut_prompts(tokenizer: Tokenizer, held_back: dict[str, str], count: int, length: int) -> list[dict[str, Any]]:
    """Cut `count` prompts of `length` tokens out of held-back files, evenly spread, each from the start of a line.

    Only pieces whose text gives the same tokens again are taken.
    """
    lines = {name: text.splitlines(keepends=True) for name, text in held_back.items()}
    lines = {name: rows for name, rows in lines.items() if len(rows) >= 40}
    prompts: list[dict[str, Any]] = []
    rounds = 0
    while len(prompts) < count:
        rounds += 1
        for name, rows in lines.items():
            start = len(rows) * rounds // (2 + count // len(lines) + 1)
            ids = tokenizer.encode("".join(rows[start : start + length])).ids[:length]
            text = tokenizer.decode(ids)
            if tokenizer.encode(text).ids == ids and len(ids) == length and len(prompts) < count:
                prompts.append({"file": name, "line": start + 1, "text": text})
        if rounds > count:
            raise ValueError(f"the held-back files give only {len(prompts)} of {count} prompts of {length} tokens")
    return prompts
