"""``python -m tintype``: the command line, also where the script ``tintype`` is not on the path."""

from __future__ import annotations

from tintype.cli.app import app

if __name__ == "__main__":
    app(prog_name="tintype")
