"""Rules about what a change alters in plain Python: their findings come from `verispec.static.since`."""

from __future__ import annotations

from collections.abc import Iterator

from verispec.static.finding import Finding, Level
from verispec.static.linking.launches import Links
from verispec.static.rules._model import Rule


def _between_versions(links: Links) -> Iterator[Finding]:
    """Return nothing: two trees are needed."""
    yield from ()


SINCE_RULES = frozenset({"SIG701", "SIG702", "SIG703", "SIG704", "SIG705", "SIG706", "SIG707"})

RULES = (
    Rule(
        "SIG701",
        "result with another number of values",
        Level.ERROR,
        "With --since, a function that always returned two values returns three now, and a caller still unpacks two: "
        "ValueError at the first call. It is reported if no definition of that name returns what the caller unpacks. "
        "Samplers and proposers gain a result for one runner, while the runner of another platform keeps the old list.",
        _between_versions,
    ),
    Rule(
        "SIG702",
        "property and method exchanged",
        Level.ERROR,
        "With --since, a property became a method and nobody calls it: its readers get a bound method, which is always "
        "true. Or a method became a property, and its callers call the value. One variant of a class changes, and "
        "readers that get any variant do not.",
        _between_versions,
    ),
    Rule(
        "SIG703",
        "coroutine that nobody awaits",
        Level.ERROR,
        "With --since, a function became asynchronous, and a caller uses its result without awaiting it: it never "
        "runs. A synchronous function that returns the coroutine is a warning, since somebody may await it later.",
        _between_versions,
    ),
    Rule(
        "SIG704",
        "override that lost its base",
        Level.ERROR,
        "With --since, a method of a base class got another name and an override kept the old one, or the override was "
        "renamed and nobody calls its new name. The default of the base runs instead, and nothing complains. Hooks "
        "of vLLM's proposers are renamed in the base while drafters in other folders, and plugins, keep the old name.",
        _between_versions,
    ),
    Rule(
        "SIG705",
        "keyword that a definition lost",
        Level.ERROR,
        "With --since, a function no longer takes a keyword that a partial still passes, or a method no longer "
        "takes one that is passed to it by the name of the method alone. It is a warning while another class has a "
        "method of that name with the keyword: a runner calls the same method of whatever proposer it holds.",
        _between_versions,
    ),
    Rule(
        "SIG706",
        "attribute read before it is set",
        Level.ERROR,
        "With --since, a constructor reads an attribute of its instance above the line that sets it, and set it first "
        "before the change; neither the class, its bases nor another method gives it a value. AttributeError whenever "
        "the class is made. Blocks of a long constructor trade places when two branches are merged.",
        _between_versions,
    ),
    Rule(
        "SIG707",
        "member or op that a change took away",
        Level.ERROR,
        "With --since, an enum member, a field of a configuration or a custom op is gone or has another name, and a "
        "use of the old one is left: of the class itself, of an instance that is named like its class, or as "
        "torch.ops. It is reported only if nothing else defines the name.",
        _between_versions,
    ),
)
