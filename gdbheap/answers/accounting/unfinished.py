"""The bytes that an incomplete graph leaves out, and the commands that would complete it."""

from __future__ import annotations

from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap

__all__ = ["finishing", "not_examined"]


def finishing(heap: Heap, nodes: Nodes, noun: str, *options: str) -> list[str]:
    """Return the command lines that would examine the rest; none if the graph is complete or no command would."""
    if not nodes.graph.is_cut:
        return []
    target = heap.target
    return [line for option in target.finishing for line in target.command_lines(noun, *options, option)]


def not_examined(nodes: Nodes) -> int:
    """Return the bytes of blocks without a proven holder; 0 if the graph is complete."""
    return nodes.graph.not_examined() if nodes.graph.is_cut else 0
