"""SIG201 to SIG204: overrides and where callers look."""

import pytest

from verispec.static import Level

KERNELS = """
import triton

{kernels}

{launches}
"""
ONE = "@triton.jit\ndef {0}_kernel(out, n):\n    pass\n"
CAPTURED = "@launcher(kernel={0}_kernel)\ndef _{0}(out, n):\n    return (1,), dict(num_warps=4)\n"
DIRECT = "def {0}(out, n):\n    {0}_kernel[(1,)](out, n)\n"
RUNNER = """
import engine.fallback as fb

def install():
    import engine.sampler
{lines}
"""
FALLBACK = """
class Wrapper:
    def __init__(self, func):
        self.func = func
    def __getitem__(self, grid):
        return self.func

def impl(out, n):
    return out, n

kernel = Wrapper(impl)
"""


def sources(launch: str, line: str, names: tuple[str, ...] = ("accept",)) -> dict[str, str]:
    return {
        "engine/sampler.py": KERNELS.format(
            kernels="\n".join(ONE.format(name) for name in names),
            launches="\n".join(launch.format(name) for name in names),
        ),
        "engine/fallback.py": FALLBACK,
        "engine/runner.py": RUNNER.format(lines="\n".join(f"    {part}" for part in line.splitlines())),
    }


def test_override_of_a_global_whose_launcher_captured_the_kernel(judged):
    (finding,) = judged("SIG201", sources(CAPTURED, "engine.sampler.accept_kernel = fb.kernel"))
    assert finding.level is Level.ERROR
    assert finding.location.path == "engine/runner.py"
    assert finding.symbol == "engine.sampler.accept_kernel"
    assert "engine.sampler._accept.kernel" in finding.fix


@pytest.mark.parametrize(
    ("launch", "line"),
    [
        (DIRECT, "engine.sampler.accept_kernel = fb.kernel"),
        (CAPTURED, "engine.sampler._accept.kernel = fb.kernel"),
        (CAPTURED, "engine.sampler.accept_kernel = fb.kernel\nengine.sampler._accept.kernel = fb.kernel"),
    ],
    ids=["read when launched", "installed in the launcher", "both"],
)
def test_override_where_the_caller_looks(judged, launch, line):
    assert judged("SIG201", sources(launch, line)) == ()


def test_override_beside_a_copied_name_is_a_warning(judged):
    tree = sources("", "engine.sampler.accept_kernel = fb.kernel")
    tree["engine/proposer.py"] = "from engine.sampler import accept_kernel\n" + DIRECT.format("accept")
    (finding,) = judged("SIG201", tree)
    assert finding.level is Level.WARNING
    tree["engine/runner.py"] += "    import engine.proposer\n    engine.proposer.accept_kernel = fb.kernel\n"
    assert judged("SIG201", tree) == ()


def test_launch_through_the_module_reads_the_module(judged):
    tree = sources("", "engine.sampler.accept_kernel = fb.kernel")
    tree["engine/proposer.py"] = (
        "import engine.sampler as s\n\ndef accept(out, n):\n    s.accept_kernel[(1,)](out, n)\n"
    )
    assert judged("SIG201", tree) == ()


def test_override_that_one_of_two_callers_reads(judged):
    tree = sources(DIRECT, "engine.sampler.accept_kernel = fb.kernel")
    tree["engine/proposer.py"] = "from engine.sampler import accept_kernel\n" + DIRECT.format("accept")
    assert judged("SIG201", tree) == ()


@pytest.mark.parametrize(
    "module",
    ["sys.modules.get('engine.proposer')", "sys.modules['engine.proposer']", "import_module('engine.proposer')"],
)
def test_override_through_a_module_object(judged, module):
    tree = sources("", f"engine.sampler.accept_kernel = fb.kernel\nholder = {module}\nname = 'accept_kernel'\n"
                       "setattr(holder, name, fb.kernel)")  # fmt: skip
    tree["engine/proposer.py"] = "from engine.sampler import accept_kernel\n" + DIRECT.format("accept")
    assert judged("SIG201", tree) == ()


OWNER = """
import triton

class Owner:
    @staticmethod
    @triton.jit
    def kernel(out, n):
        pass

    def __call__(self, out, n):
        self.kernel[(1,)](out, n)

OWNED = Owner()
"""


@pytest.mark.parametrize("holder", ["OWNED", "Owner"])
def test_override_of_a_kernel_that_an_instance_holds(judged, holder):
    tree = {**sources(DIRECT, f"engine.owner.{holder}.kernel = fb.kernel"), "engine/owner.py": OWNER}
    tree["engine/runner.py"] = tree["engine/runner.py"].replace("import engine.sampler", "import engine.owner")
    assert judged("SIG201", tree) == ()
    tree["engine/fallback.py"] = FALLBACK.replace("def impl(out, n)", "def impl(out)")
    (finding,) = judged("SIG103", tree)
    assert finding.symbol == "engine.owner.Owner.kernel"


def test_kernel_without_a_counterpart(judged):
    names = ("a", "b", "c", "d")
    lines = "\n".join(f"engine.sampler.{name}_kernel = fb.kernel" for name in names)
    assert judged("SIG202", sources(DIRECT, lines, names)) == ()
    (finding,) = judged("SIG202", sources(DIRECT, lines.replace("engine.sampler.d_kernel = fb.kernel", "pass"), names))
    assert (finding.level, finding.symbol) == (Level.WARNING, "engine.sampler.d_kernel")


def test_kernels_that_a_plugin_puts_beside_those_of_a_platform(judged):
    """vllm-metax replaces a module of vLLM, whose table for the CPU names the kernels of the original."""
    names = ("a", "b", "c", "d")
    core = sources(DIRECT, "\n".join(f"engine.sampler.{name}_kernel = fb.kernel" for name in names), names)
    launches = DIRECT.format("a").replace("def a", "def other") + DIRECT.format("e")
    plugin = {"plug/sampler.py": "import triton\nfrom engine.sampler import a_kernel\n" + ONE.format("e") + launches}
    assert judged("SIG202", plugin, core) == ()
    assert len(judged("SIG202", {**core, **plugin})) == 1


def test_kernel_of_a_dispatcher_without_a_counterpart(judged):
    names = ("a", "b", "c", "d")
    lines = "\n".join(f"engine.sampler._{name}.kernel = fb.kernel" for name in names)
    assert judged("SIG202", sources(CAPTURED, lines, names)) == ()
    (finding,) = judged(
        "SIG202", sources(CAPTURED, lines.replace("engine.sampler._d.kernel = fb.kernel", "pass"), names)
    )
    assert finding.symbol == "engine.sampler.d_kernel"
    assert finding.sides[0].label == "dispatcher"


@pytest.mark.parametrize(("name", "found"), [("accept_kernel", 0), ("acccept_kernel", 1), ("Class.accept_kernel", 0)])
def test_override_of_a_name_that_is_not_there(judged, name, found):
    assert len(judged("SIG203", sources(DIRECT, f"engine.sampler.{name} = fb.kernel"))) == found


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("engine/__init__.py", "from engine import sampler\nsampler.fresh = fb.kernel", 0),
        ("engine/other.py", "from engine import sampler\nsampler.fresh = fb.kernel", 1),
        ("engine/other.py", "from engine import sampler\nsampler.original = sampler.accept_kernel", 0),
        ("engine/other.py", "from engine import sampler\nsampler.original = sampler.gone", 1),
        ("engine/other.py", "from engine.state import state\nstate.size = fb.kernel", 0),
        ("engine/other.py", "from engine.state import bare\nbare.size = fb.kernel", 1),
    ],
)
def test_names_that_are_given_on_purpose(judged, path, text, found):
    """triton-ascend and ms-swift: a package's own modules, a kept original, an object named like its module."""
    tree = sources(DIRECT, "pass")
    tree["engine/state/__init__.py"] = "from .state import state\nfrom . import bare\n"
    tree["engine/state/state.py"] = "class State:\n    pass\n\nstate = State()\n"
    tree["engine/state/bare.py"] = "x = 1\n"
    tree[path] = f"import triton\nimport engine.fallback as fb\nfrom engine.sampler import accept_kernel\n{text}\n"
    assert len(judged("SIG203", tree)) == found


def test_override_in_a_module_that_something_else_may_make(judged):
    assert judged("SIG203", sources(DIRECT, "engine.extension.accept_kernel = fb.kernel")) == ()


REGISTRY = """
import importlib
def install(table):
    for name, new in table.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, new)
"""


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("engine.sampler.accept_kernel", 0),
        ("engine.sampler.acccept_kernel", 1),
        ("engine.samplers.accept_kernel", 1),
        ("engine.ops.sampler.accept_kernel", 1),
        ("engine._C.accept_kernel", 0),  # compiled
        ("torch.samplers.accept_kernel", 0),
        ("engine.sampler.Class.accept_kernel", 0),
    ],
)
def test_entry_of_a_registry_that_is_not_there(judged, entry, found):
    tree = sources(DIRECT, f"install({{'{entry}': fb.kernel}})")
    tree["engine/registry.py"] = REGISTRY
    tree["engine/runner.py"] = f"from engine.registry import install\n{tree['engine/runner.py']}"
    assert len(judged("SIG203", tree)) == found
    tree["engine/__init__.py"] = "def __getattr__(name): ...\n"
    assert len(judged("SIG203", tree)) == (found and entry.startswith("engine.sampler."))


STRICT = """
import importlib
def find(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
def install(table):
    for name, new in table.items():
        find(name).func = new
"""
ASKING = STRICT.replace("return getattr", "found = hasattr").replace("attribute)\n", "attribute)\n    {0}\n")


def with_registry(registry: str, lines: str, before: str = "") -> dict[str, str]:
    tree = sources(DIRECT, lines)
    runner = tree["engine/runner.py"].replace("def install", f"{before}\ndef setup")
    return tree | {
        "engine/__init__.py": "",
        "engine/registry.py": registry,
        "engine/runner.py": f"from engine.registry import install\n{runner}",
    }


PRESENT, NO_NAME, NO_MODULE = "engine.sampler.accept_kernel", "engine.sampler.acccept_kernel", "engine.samplers.kernel"


@pytest.mark.parametrize(
    ("registry", "entry", "level"),
    [
        (STRICT, PRESENT, None),
        (STRICT, NO_NAME, Level.ERROR),
        (STRICT, NO_MODULE, Level.ERROR),
        (REGISTRY, NO_NAME, Level.WARNING),  # setattr makes it
        (REGISTRY, NO_MODULE, Level.ERROR),
        (ASKING.format("raise ValueError(name)"), NO_NAME, Level.ERROR),
        (ASKING.format("return None"), NO_NAME, Level.WARNING),
        (ASKING.format("return None"), NO_MODULE, Level.ERROR),
        (STRICT + "try:\n    import other\nexcept ImportError:\n    pass\n", NO_NAME, Level.WARNING),
        (STRICT.replace("importlib.import_module(module)", "sys.modules[module]"), NO_MODULE, Level.WARNING),
    ],
)
def test_entry_that_its_registry_raises_for(judged, registry, entry, level):
    tree = with_registry(registry, f"install({{'{entry}': fb.kernel}})")
    assert [finding.level for finding in judged("SIG203", tree)] == ([level] if level else [])


@pytest.mark.parametrize(
    ("line", "path", "more"),
    [
        (f"try:\n    install({{'{NO_MODULE}': fb.kernel}})\nexcept ImportError:\n    pass", "", ""),
        (f"with suppress(ImportError):\n    install({{'{NO_MODULE}': fb.kernel}})", "", ""),
        (
            f"install({{'{NO_MODULE}': fb.kernel}})",
            "engine/user.py",
            "import triton.jit\nfrom engine.samplers import x",
        ),
        (f"install({{'{NO_NAME}': fb.kernel}})", "engine/sampler.py", "globals()['acccept_kernel'] = accept_kernel"),
        (f"if core_version == '1.0':\n    install({{'{NO_NAME}': fb.kernel}})", "", ""),
    ],
)
def test_entry_whose_registry_may_not_raise(judged, line, path, more):
    tree = with_registry(STRICT, line)
    if path:
        tree[path] = f"{tree.get(path, '')}\n{more}\n"
    assert [finding.level for finding in judged("SIG203", tree)] == [Level.WARNING]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("table = {'ENTRY': fb.kernel}\ninstall(table)", 1),
        ("table: dict = {'ENTRY': fb.kernel}\ninstall(table)", 1),
        ("table = {}\ntable['ENTRY'] = fb.kernel\ninstall(table)", 1),
        ("table = {'ENTRY': fb.kernel}\nif not table.get('ENTRY'):\n    return\ninstall(overrides=table)", 1),
        ("table = {'ENTRY': fb.kernel}\ntable.clear()\ninstall(table)", 0),
        ("table = {'ENTRY': fb.kernel}\ndel table['ENTRY']\ninstall(table)", 0),
        ("table = {'ENTRY': fb.kernel}\ntable = other()\ninstall(table)", 0),
        ("table = {'ENTRY': fb.kernel}\nstrip(table)\ninstall(table)", 0),
        ("table = {'ENTRY': fb.kernel}\ndef inner():\n    table.clear()\ninner()\ninstall(table)", 0),
        ("install(TABLE)", 1),
        ("TABLE.clear()\ninstall(TABLE)", 0),
    ],
)
def test_registry_whose_table_is_kept_in_a_variable(judged, lines, found):
    table = f"TABLE = {{'{NO_MODULE}': fb.kernel}}" if "TABLE" in lines else ""
    tree = with_registry(STRICT, lines.replace("ENTRY", NO_MODULE), table)
    assert len(judged("SIG203", tree)) == found


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("hasattr(engine.sampler, 'old')", 0),
        ("new and hasattr(engine.sampler, 'old')", 0),
        ("new or hasattr(engine.sampler, 'old')", 1),
        ("hasattr(engine.sampler, 'other')", 1),
        ("not hasattr(engine.sampler, 'old')", 1),
    ],
)
def test_override_where_the_name_is_there(judged, test, found):
    tree = sources(DIRECT, f"if {test}:\n        engine.sampler.old = fb.kernel")
    assert len(judged("SIG203", tree)) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("old = getattr(engine.sampler, 'old', None)\nif old is None:\n    return", 0),
        ("old = getattr(engine.sampler, 'old', None)\nif not old or new:\n    return", 0),
        ("if not hasattr(engine.sampler, 'old'):\n    return", 0),
        ("old = getattr(engine.sampler, 'other', None)\nif old is None:\n    return", 1),
        ("old = getattr(engine.sampler, 'old', None)\nif old is None:\n    pass", 1),
        ("old = getattr(engine.sampler, 'old', None)\nif old is not None:\n    return", 1),
        ("old = getattr(engine.sampler, 'old')\nif old is None:\n    return", 1),
        ("if hasattr(engine.sampler, 'old'):\n    return", 1),
    ],
)
def test_override_after_a_look_for_the_name(judged, lines, found):
    """vllm-gaudi leaves where the function that it patches is not there."""
    assert len(judged("SIG203", sources(DIRECT, f"{lines}\nengine.sampler.old = fb.kernel"))) == found


@pytest.mark.parametrize("line", ["old = getattr(engine.sampler, 'old', None)", ""])
@pytest.mark.parametrize(("test", "found"), [("old is not None", 0), ("old and new", 0), ("old is None", 1)])
def test_override_under_a_look_for_the_name(judged, line, test, found):
    tree = sources(DIRECT, f"{line}\nif {test}:\n    engine.sampler.old = fb.kernel")
    assert len(judged("SIG203", tree)) == (found if line else 1)


@pytest.mark.parametrize(
    ("path", "line", "level"),
    [
        ("plug/patch.py", "core.sampler._is_patched = True", None),  # a mark
        ("plug/patch.py", "def set_up(ranks):\n    group = ranks[0]\n    core.sampler._GROUP = group", None),
        ("plug/patch.py", "core.sampler.IS_PATCHED = True", Level.WARNING),
        ("plug/patch.py", "core.sampler._draw = draw", Level.WARNING),
        ("plug/patch.py", "core.ops.draw = draw\ncore.sampler.draw = draw", Level.NOTE),  # the old place and the new
        ("plug/patch.py", "core.ops.draw = other\ncore.sampler.draw = draw", Level.WARNING),
        ("core/extra.py", "core.sampler.draw_fast = draw", None),  # core/user.py reads it
        ("core/extra.py", "core.sampler.draw_slow = draw", Level.WARNING),
        ("plug/patch.py", "core.sampler.draw_fast = draw", Level.WARNING),
    ],
)
def test_names_that_replace_nothing(judged, path, line, level):
    """Marks of vllm-metal, groups of Arctic Inference, and backends of FlagTree and triton-ascend."""
    host = {
        "core/sampler.py": "def sample():\n    pass\n",
        "core/ops.py": "def draw():\n    pass\n",
        "core/user.py": "import core.sampler\n\ndef use(x):\n    return core.sampler.draw_fast(x)\n",
    }
    text = f"import core.sampler\nimport core.ops\n\ndef draw():\n    pass\n\ndef other():\n    pass\n\n{line}\n"
    trees = ({**host, path: text}, None) if path.startswith("core/") else ({path: text}, host)
    assert [finding.level for finding in judged("SIG203", *trees)] == ([level] if level else [])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ("config, rank", None),
        ("config, rank, *args, **kwargs", None),
        ("config, rank, extra=None", None),
        ("config", "does not take rank"),
        ("config, rank, extra", "requires extra"),
    ],
)
def test_plugin_patch_against_the_core(judged, params, words):
    core = {"engine/utils.py": "def setup(config, rank):\n    pass\n"}
    plugin = {
        "plugin/patch.py": f"""
        import engine.utils

        def setup({params}):
            pass

        engine.utils.setup = setup
        """
    }
    findings = judged("SIG204", plugin, core)
    assert [words in finding.message for finding in findings] == ([True] if words else [])


@pytest.mark.parametrize(("params", "found"), [("self, block, prepend=False", 0), ("self, block", 1)])
def test_plain_function_that_becomes_a_method(judged, params, found):
    core = {"engine/pool.py": "class Pool:\n    def free(self, block, prepend=False):\n        pass\n"}
    plugin = {
        "plugin/patch.py": f"""
        from engine.pool import Pool

        def free({params}):
            pass

        Pool.free = free
        """
    }
    assert len(judged("SIG204", plugin, core)) == found


def test_findings_of_the_core_alone_are_not_repeated(judged):
    core = sources(CAPTURED, "engine.sampler.accept_kernel = fb.kernel")
    assert judged("SIG201", {"plugin/x.py": "import engine.sampler\n"}, core) == ()
    plugin = {"plugin/x.py": "import engine.sampler\nimport plugin.f\nengine.sampler.accept_kernel = plugin.f.kernel\n",
              "plugin/f.py": FALLBACK}  # fmt: skip
    core = {"engine/sampler.py": core["engine/sampler.py"]}
    (finding,) = judged("SIG201", plugin, core)
    assert finding.location.path == "plugin/x.py"
