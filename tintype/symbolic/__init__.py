"""Symbolic sizes: expressions, ranges, decisions, the environment, the torch.SymInt bridge.

``sizes`` is what shape rules call, ``bridge`` what makes torch's own kernels
work on our symbols (imported separately: it needs torch).
"""

from tintype.errors import DataDependentError, Location

from .bits import shift_left, shift_right
from .division import ceil_div, exact_quotient, floor_div, mod
from .environment import Assertion, Environment, Guard, Specialization
from .evaluation import evaluate, substitute
from .expression import Expr, Size, Symbol
from .extrema import absolute, choose, maximum, minimum, power
from .failures import RequirementError
from .location import user_location
from .parse import ExpressionSyntaxError, parse
from .ranges import Range
from .relations import Condition, and_, eq, ge, gt, le, lt, ne, not_, or_
from .solve import Congruence, solve_congruence, solve_divisibility, solve_linear
from .text import named_text, python_source, text

__all__ = [
    "Assertion",
    "Condition",
    "Congruence",
    "DataDependentError",
    "Environment",
    "Expr",
    "ExpressionSyntaxError",
    "Guard",
    "Location",
    "Range",
    "RequirementError",
    "Size",
    "Specialization",
    "Symbol",
    "absolute",
    "and_",
    "ceil_div",
    "choose",
    "eq",
    "evaluate",
    "exact_quotient",
    "floor_div",
    "ge",
    "gt",
    "le",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "named_text",
    "ne",
    "not_",
    "or_",
    "parse",
    "power",
    "python_source",
    "shift_left",
    "shift_right",
    "solve_congruence",
    "solve_divisibility",
    "solve_linear",
    "substitute",
    "text",
    "user_location",
]
