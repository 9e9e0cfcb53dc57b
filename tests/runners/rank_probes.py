"""A runner that reports what its rank holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.rank import RankMixin


class Tells(RankMixin, CPURunner):
    """Puts the shapes of this rank's weights into the text of each result."""

    def generate(self, *arguments: Any) -> Any:
        layer = self._model.model.layers[0].self_attn
        shapes = [tuple(m.weight.shape) for m in (layer.q_proj, layer.o_proj, self._model.lm_head)]
        width = self.cache.layers[0].shape[1]
        text = f"q {shapes[0]} o {shapes[1]} head {shapes[2]} cache {width}"
        return [replace(result, text=text) for result in super().generate(*arguments)]
