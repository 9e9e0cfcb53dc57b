"""Pictures of statistical tests as SVG text, without scripts, fonts or links.

Every function takes what a case's record holds under `evidence` and returns one `<svg>` element.
"""

from verispec.report.pictures.acceptance import reliability
from verispec.report.pictures.evidence import evidence_over_tokens
from verispec.report.pictures.excluded import excluded_sizes
from verispec.report.pictures.noise import noise_table
from verispec.report.pictures.places import places

__all__ = ["evidence_over_tokens", "excluded_sizes", "noise_table", "places", "reliability"]
