"""How `make docs` makes a site of these pages: Sphinx, with Markdown by MyST and the reference from docstrings."""

from importlib.metadata import version as version_of

project = "tintype"
author = "The tintype authors"
copyright = "The tintype authors"
version = release = version_of("tintype")

root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"tintype {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
