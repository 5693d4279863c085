"""The command line: ``tintype info`` and ``tintype run``."""
