"""The reference engine with modules replaced by mutated ones: ``--engine mutant_engine:engine``.

``VERISPEC_MUTANT`` names them as ``module=file`` pairs, separated by semicolons: a built extension instead of
verispec.reference._csrc, or a changed oracle instead of the true one.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location

from verispec.engines.adapters.reference import Reference
from verispec.mutants.plugin import leave_unexplained


def engine() -> Reference:
    leave_unexplained()
    for pair in os.environ["VERISPEC_MUTANT"].split(";"):
        name, _, path = pair.partition("=")
        package, _, stem = name.rpartition(".")
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
        setattr(importlib.import_module(package), stem, module)
    return Reference("verispec.reference.cpu", "mutant", "cpu", {})
