"""Graphs that are built without fx's own way of making nodes look like those that it makes."""

import builtins
import keyword
import operator

import pytest
import torch
from torch.fx import Graph

from tintype.ir.graph import add_placeholder, append_call, called_functions

NAMES = ["add", "add_1", "size_2", "_", "_1", "__and__", "self", "torch", "device", "inf", "nan", "a b", "1st", ""]


@pytest.mark.parametrize("taken", [(), ("add", "mul_1", "size_1", "max_1", "if")])
def test_the_first_name_is_the_one_that_fx_gives(taken):
    for name in [*NAMES, *keyword.kwlist, *dir(builtins)]:
        ours, theirs = Graph(), Graph()
        for graph in (ours, theirs):
            for other in taken:
                add_placeholder(graph, other)
        namespace, expected = ours._graph_namespace, theirs._graph_namespace
        assert append_call(ours, operator.neg, (), {}, name).name == expected.create_name(name, None)
        assert namespace._used_names == expected._used_names
        assert namespace._base_count == expected._base_count


def test_functions_that_a_graph_calls():
    graph = Graph()
    x = graph.placeholder("x")
    kept = graph.call_function(torch.relu, (x,))
    gone = graph.call_function(torch.neg, (x,))
    again = graph.call_function(torch.relu, (kept,))
    graph.output((again,))
    assert called_functions(graph) == [torch.relu, torch.neg]
    graph.erase_node(gone)
    assert called_functions(graph) == [torch.relu]
    again.target = torch.cos
    assert called_functions(graph) == [torch.relu, torch.cos]
