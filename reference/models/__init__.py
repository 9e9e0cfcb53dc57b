"""Models of the reference engine: any causal model that transformers loads, and the Eagle3 head.

Only the head (`eagle3`) is implemented here. Targets and draft models are transformers' own classes, and hooks read the
target's inner states for the head (`auxiliary`). On the CPU, kernels of the reference run the weights of models that
they reproduce (`fused_cpu`).
"""

from .auxiliary import AuxiliaryStates, default_layers
from .eagle3 import Eagle3Config, Eagle3Head, load_eagle3
from .target import load_target, load_tokenizer

__all__ = [
    "AuxiliaryStates",
    "Eagle3Config",
    "Eagle3Head",
    "default_layers",
    "load_eagle3",
    "load_target",
    "load_tokenizer",
]
