"""What the opcodes of each Python mean: one table per version, and the only place that asks which Python runs."""

from __future__ import annotations

import sys

from tintype.interpret.versions import python311, python312, python313
from tintype.interpret.versions.decoding import Target, Version

VERSIONS = {version.name: version for version in (python311.VERSION, python312.VERSION, python313.VERSION)}

# None: a Python without a table, of which nothing can be interpreted
RUNNING: Version | None = VERSIONS.get(f"{sys.version_info.major}.{sys.version_info.minor}")

__all__ = ["RUNNING", "VERSIONS", "Target", "Version"]
