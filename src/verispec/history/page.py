"""The answers about a history as one self-contained HTML page, in the style of the report."""

from __future__ import annotations

from importlib import resources

from verispec.history.questions import Answers


def as_html(answers: Answers, place: str) -> str:
    """Return the page.

    Args:
        answers: answers to show.
        place: folder or URL of the history, for the title.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("verispec.history", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    style = (resources.files("verispec.report.html") / "style.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(answers=answers, place=place, style=Markup(style))
