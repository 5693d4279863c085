"""The fixture that runs a test once per way of capturing a program."""

from tests.export.modes import mode

__all__ = ["mode"]
