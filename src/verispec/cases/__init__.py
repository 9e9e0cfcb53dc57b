"""Cases: their ids, and the decorator with which suites declare them."""

from verispec.cases._decorator import CaseSpec, case
from verispec.cases._id import CaseId, selects

__all__ = ["CaseId", "CaseSpec", "case", "selects"]
