"""Shape rules of the operators that models use most, by family."""

from tintype.fake.rules import elementwise, factories, views
from tintype.fake.rules.registry import RULES

__all__ = ["RULES", "elementwise", "factories", "views"]
