"""Cases: their ids and the decorator that declares them."""

from verispec.cases._decorator import CaseSpec, case
from verispec.cases._id import CaseId, selects

__all__ = ["CaseId", "CaseSpec", "case", "selects"]
