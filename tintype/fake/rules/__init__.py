"""Shape rules of the operators that models use most, by family."""

from tintype.fake.rules import attention, convolution, elementwise, factories, matrix, normalization, pooling, recurrent, resizing, views
from tintype.fake.rules.registry import RULES

__all__ = ["RULES", "convolution", "elementwise", "factories", "matrix", "normalization", "views"]
