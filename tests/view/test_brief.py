"""What people print is short enough to be read."""

from __future__ import annotations

import pydoc

import torch

import tintype
from tintype.export.constraints import ContractLine
from tintype.export.contract import Contract


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        x = self.layer(x) * scale
        if x.sum() > 3:
            x = x / x.sum()
        return x + x[0]  # there must be a row: the program asserts it


X = torch.ones(2, 4)


def test_a_program_says_where_the_data_decide_and_cuts_long_texts() -> None:
    sizes = {"x": {0: tintype.Dim("rows")}, "scale": None}
    text = str(tintype.export(Model(), (X,), {"scale": torch.ones(4)}, dynamic_shapes=sizes))
    assert "  cond: the data decide which way it goes  # test_brief.py:" in text
    assert max(map(len, text.splitlines())) < 160
    assert "..." in next(line for line in text.splitlines() if "_assert_scalar" in line)


def test_a_module_shows_its_parts_and_what_it_takes() -> None:
    module = tintype.export(Model(), (X,), {"scale": torch.ones(4)}).module()
    assert str(module).startswith("ProgramModule(\n  (layer): Module()")
    assert "# takes x, scale; module.code" in str(module) and "def forward" not in str(module)
    assert "def forward" in module.code


def test_conditions_of_a_contract_are_cut() -> None:
    long = "x.shape[0]*" * 60 + "x.shape[1] == y.shape[0]"
    shown = str(Contract([ContractLine("assertion", long, None), ContractLine("assertion", "x.shape[0] == 2", None)]))
    first, second = shown.splitlines()
    assert len(first) < 300 and first.endswith("(the first of 684 characters)") and second == "x.shape[0] == 2"
    assert ContractLine("assertion", long, None).text == long


def test_help_shows_the_parameters_of_export() -> None:
    assert "tintype.export(mod, args, kwargs=None, *, dynamic_shapes=None" in (tintype.export.__doc__ or "")
    assert len(pydoc.render_doc(tintype.export).splitlines()) < 150  # of the function, not of all that is in its room
