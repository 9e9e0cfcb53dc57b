"""Models of the reference engine: any causal model that transformers loads, and heads that draft.

Only the heads (`eagle3`, `mtp`) are implemented here. Targets and draft models are transformers' own classes, and hooks
read the target's inner states for a head (`auxiliary`). Kernels of the reference run the weights of models that they
reproduce (`fused`), in C++ and in Triton.
"""

from .auxiliary import AuxiliaryStates, default_layers
from .checkpoint import mask_token
from .eagle3 import Eagle3Config, Eagle3Head, load_eagle3
from .mtp import MTPConfig, MTPHead, load_mtp
from .target import load_target, load_tokenizer

__all__ = [
    "AuxiliaryStates",
    "Eagle3Config",
    "Eagle3Head",
    "MTPConfig",
    "MTPHead",
    "default_layers",
    "load_eagle3",
    "load_mtp",
    "load_target",
    "load_tokenizer",
    "mask_token",
]
