"""The command line: ``tintype --help``."""
