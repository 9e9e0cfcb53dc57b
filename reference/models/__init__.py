"""Models of the reference engine: any causal model that transformers loads, and the Eagle3 head.

Nothing here is written by hand but the head (`eagle3`): targets and draft models come from
transformers' own classes, and what the head needs of a target's inner states is read by hooks (`auxiliary`). On the CPU
their weights run in kernels of the reference where these compute the same (`compact`).
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
