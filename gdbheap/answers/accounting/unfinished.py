"""Say how many bytes an incomplete graph leaves out, and which commands would complete it."""

from __future__ import annotations

from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap

__all__ = ["finishing", "not_examined"]


def finishing(heap: Heap, nodes: Nodes, noun: str, *options: str) -> list[str]:
    """Return the command lines that would examine all blocks; empty if the graph is complete or no command would help.

    ``noun`` and ``options``: the name and the options of the command that was run.
    """
    if not nodes.graph.is_cut:
        return []
    target = heap.target
    return [line for option in target.finishing for line in target.command_lines(noun, *options, option)]


def not_examined(nodes: Nodes) -> int:
    """Return the bytes of the blocks in an incomplete graph whose holder was not searched for; 0 if the graph is
    complete."""
    return nodes.graph.not_examined() if nodes.graph.is_cut else 0
