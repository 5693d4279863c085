"""Programs as pages: one HTML file that shows what a program takes, what it is made of and what it costs.

``program.view("model.html")`` and ``tintype view model.tt`` write it; :func:`page_of` puts several programs into one
page and :func:`problems_page` shows what stands in the way of an export. The page needs nothing but a browser: no
server, no network. What it knows is the data that ``programs.py`` gathers; the JavaScript that shows them is in
``page/``, one small file for each thing, put together as it is.

>>> import torch, tintype
>>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
>>> tintype.view.page_of({"linear": ep}).html.startswith("<!doctype html>")
True
"""

from tintype.view.pages import Page, page_of, problems_page

__all__ = ["Page", "page_of", "problems_page"]
