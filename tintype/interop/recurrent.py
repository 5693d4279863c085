"""Recurrent layers for torch's programs.

torch has no recurrent layers among its core operators: whoever decomposes a program writes them out, one copy of the
body per step, as many as the example has. That is wrong for a program that takes sequences of any length, without a
word. There a layer becomes a loop (``scan``). Where the length is fixed it stays whole; in a program of core
operators it is written out as torch would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.export import ExportedProgram, Stage
from tintype.export.decompose import decompose_partly
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import subgraphs
from tintype.ir.process_switches import onednn_off
from tintype.ops.scan import scan
from tintype.symbolic import Expr
from tintype.transforms.checked_decompositions import COMPOSITES

aten = torch.ops.aten
linear = torch.nn.functional.linear

# The values that a layer carries from step to step, and those that it computes from them and from a row of its input.
Cell = Callable[[Sequence[torch.Tensor], torch.Tensor, Any], Sequence[torch.Tensor]]


def with_loops(program: ExportedProgram) -> ExportedProgram:
    """The program with loops in the place of recurrent layers whose consumers would fix the length of sequences."""
    layers = [node for module in subgraphs(program.graph_module) for node in _layers(module.graph)]
    written_out = program.stage is Stage.CORE
    if not any(written_out or _varies(node.meta["val"][0], node.args[-1]) for node in layers):
        return program
    preserved = {node.target for module in subgraphs(program.graph_module) for node in module.graph.nodes}
    preserved -= set(_CELLS)
    table = {operator: _loop(operator, cell, written_out) for operator, cell in _CELLS.items()}
    with onednn_off():  # whose layers are no core operators, and take contiguous sequences alone
        lowered = decompose_partly(program, table, frozenset({*preserved, aten.linear.default}))
        return lowered.run_decompositions() if written_out else lowered


def _layers(graph: Graph) -> Iterator[Node]:
    for operator in _CELLS:
        yield from graph.find_nodes(op="call_function", target=operator)


def _varies(sequence: Any, batch_first: Any) -> bool:
    """Whether sequences may have another length than in the example."""
    assert type(sequence) is FakeTensor
    return isinstance(sequence.info.sizes[1 if batch_first else 0], Expr)


def _loop(operator: Any, cell: Cell, written_out: bool) -> Callable[..., Any]:
    def layers(
        sequence: torch.Tensor,
        hx: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        arguments = (sequence, hx, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        if not _varies(sequence, batch_first):
            return COMPOSITES[operator](*arguments) if written_out else NotImplemented
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        torch._check(sequence.shape[1 if batch_first else 0] > 0)  # what the operator itself asks for
        rows = sequence.transpose(0, 1) if batch_first else sequence
        directions = 2 if bidirectional else 1
        # a projection of the hidden state (proj_size) is one weight more for each direction
        count = (4 if has_biases else 2) + (operator is aten.lstm.input and hx[0].shape[2] != hx[1].shape[2])
        last: list[Sequence[torch.Tensor]] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                own = weights[place * count : (place + 1) * count]
                carried, output = _direction(
                    cell, rows, [state[place] for state in states], own, has_biases, reverse=direction == 1
                )
                last.append(carried)
                outputs.append(output)
            rows = torch.cat(outputs, 2) if bidirectional else outputs[0]
            if dropout > 0 and train and layer < num_layers - 1:
                rows = torch.dropout(rows, dropout, True)
        result = rows.transpose(0, 1) if batch_first else rows
        return (result, *(torch.stack(list(column)) for column in zip(*last)))

    return layers


def _direction(
    cell: Cell,
    rows: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    *,
    reverse: bool,
) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
    """One layer in one direction: the last states, and the outputs of all steps."""
    input_weight, hidden_weight, *rest = weights
    input_bias, hidden_bias = rest[:2] if has_biases else (None, None)
    projection = rest[2 if has_biases else 0 :]
    given = linear(rows, input_weight, input_bias)  # for all steps at once

    # the states are carried as one tensor: torch's compiler fails where a loop begins with the same tensor twice
    widths = [state.shape[1] for state in states]

    def step(carried: torch.Tensor, row: torch.Tensor) -> Any:
        if isinstance(carried.shape[0], torch.SymInt):
            # A tool may give the states another batch size than the rows (ExecuTorch has the largest allowed):
            # side by side that fails, where sums of the two would have the larger size without a word.
            *now, row = torch.cat([carried, row], 1).split([*widths, row.shape[1]], 1)
        else:
            now = list(carried.split(widths, 1))
        following = cell(now, row, linear(now[0], hidden_weight, hidden_bias))
        if projection:
            following = (linear(following[0], projection[0]), *following[1:])
        return torch.cat(list(following), 1), following[0].clone()

    carried, outputs = scan(step, torch.cat(list(states), 1), given, reverse=reverse)
    return carried.split(widths, 1), outputs


def _lstm(carried: Sequence[torch.Tensor], row: torch.Tensor, hidden: torch.Tensor) -> Sequence[torch.Tensor]:
    into, forget, new, out = (hidden + row).chunk(4, 1)
    cell = forget.sigmoid() * carried[1] + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru(carried: Sequence[torch.Tensor], row: torch.Tensor, hidden: torch.Tensor) -> Sequence[torch.Tensor]:
    row_reset, row_update, row_new = row.chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = hidden.chunk(3, 1)
    reset = (hidden_reset + row_reset).sigmoid()
    update = (hidden_update + row_update).sigmoid()
    new = (row_new + hidden_new * reset).tanh()
    return ((carried[0] - new) * update + new,)


def _tanh(carried: Sequence[torch.Tensor], row: torch.Tensor, hidden: torch.Tensor) -> Sequence[torch.Tensor]:
    return ((hidden + row).tanh(),)


def _relu(carried: Sequence[torch.Tensor], row: torch.Tensor, hidden: torch.Tensor) -> Sequence[torch.Tensor]:
    return ((hidden + row).relu(),)


_CELLS: dict[Any, Cell] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _gru,
    aten.rnn_tanh.input: _tanh,
    aten.rnn_relu.input: _relu,
}
