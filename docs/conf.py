"""Sphinx configuration: hand-written Markdown, an API reference from docstrings, and pages generated from the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import verispec

sys.path.insert(0, str(Path(__file__).parent))

project = "verispec"
author = "The verispec maintainers"
release = verispec.__version__
extensions = [
    "generated_pages",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "linkify"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"verispec {release}"
html_theme_options = {"source_repository": "https://github.com/verispec/verispec/", "source_directory": "docs/"}

# Signatures and docstrings are enough: the API reference is built where no engine and no torch is installed.
autodoc_mock_imports = ["torch", "triton", "transformers", "scipy", "hypothesis", "pytest", "vllm"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# A docstring may name a parameter or a local thing in single backquotes.
default_role = "code"
linkcheck_anchors = False


def setup(app: Any) -> None:
    """Keep rendered reports out of the reading order, and link to files of the repository outside docs/."""
    app.connect("source-read", _orphan_verdicts)
    app.connect("missing-reference", _repository_file)


def _orphan_verdicts(app: Any, docname: str, source: list[str]) -> None:
    if docname.startswith("verdicts/"):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def _repository_file(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    from docutils import nodes

    root = Path(__file__).resolve().parents[1]
    target = (Path(__file__).parent / Path(node.get("refdoc", "index")).parent / node["reftarget"]).resolve()
    if target.is_relative_to(root) and target.exists():
        where = target.relative_to(root).as_posix()
        return nodes.reference("", "", contnode, refuri=f"https://github.com/verispec/verispec/blob/main/{where}")
    return None
