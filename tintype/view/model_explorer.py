"""Programs in the JSON that Google's Model Explorer reads: a collection of graphs, whose nodes name the nodes whose
values they are given. Modules are its namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tintype.view.programs import program_data
from tintype.view.sources import Lines

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def model_explorer_data(programs: Mapping[str, ExportedProgram], *, label: str = "tintype") -> dict[str, Any]:
    """The collection: one graph for each program.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))
    >>> node = model_explorer_data({"relu": ep})["graphs"][0]["nodes"][1]
    >>> node["label"], node["namespace"], node["incomingEdges"][0]["sourceNodeId"]
    ('aten.relu.default', '0 (ReLU)', '0')
    """
    lines = Lines(source=False)
    graphs = [_graph(program_data(name, program, lines)) for name, program in programs.items()]
    return {"label": label, "graphs": graphs}


def _graph(data: dict[str, Any]) -> dict[str, Any]:
    spaces = _namespaces(data["modules"])
    nodes = [_node(number, node, data, spaces) for number, node in enumerate(data["nodes"])]
    return {"id": data["name"], "nodes": nodes}


def _namespaces(modules: list[dict[str, Any]]) -> list[str]:
    """The path of each module; a parent stands before its children."""
    spaces: list[str] = []
    for module in modules:
        kind = f" ({module['class']})" if module.get("class") else ""
        own = f"{module['label']}{kind}".replace("/", "_")
        around = spaces[module["parent"]] if module["parent"] is not None else ""
        spaces.append("" if module["parent"] is None else f"{around}/{own}".lstrip("/"))
    return spaces


def _node(number: int, node: dict[str, Any], data: dict[str, Any], spaces: list[str]) -> dict[str, Any]:
    is_state = node["kind"] in ("parameter", "buffer", "constant", "object")
    attributes = [("name", node["name"]), ("kind", node["kind"])]
    attributes += [(name or "result", _text(value, data["nodes"])) for name, value in node.get("arguments", [])]
    if node.get("operations") is not None:
        attributes.append(("operations", data["formulas"][node["operations"]]["text"]))
    return {
        "id": str(number),
        "label": node.get("operator") or node.get("target") or node["name"],
        "namespace": "weights" if is_state else spaces[node["module"]],
        "incomingEdges": [
            {"sourceNodeId": str(source), "sourceNodeOutputId": "0", "targetNodeInputId": str(position)}
            for position, source in enumerate(node.get("inputs", []))
        ],
        "attrs": [{"key": key, "value": value} for key, value in attributes],
        "outputsMetadata": [
            {"id": "0", "attrs": [{"key": "tensor_shape", "value": data["types"][node["type"]]["text"]}]}
        ],
    }


def _text(value: Any, nodes: list[dict[str, Any]]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_text(item, nodes) for item in value)}]"
    return str(nodes[value["node"]]["name"]) if isinstance(value, dict) else str(value)
