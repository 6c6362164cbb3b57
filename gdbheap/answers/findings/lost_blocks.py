"""Blocks of a program without Python to which nothing leads."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.answers.findings.finding import UNLISTED, Evidence, Figures, Finding


@dataclass(frozen=True)
class LostBlocks(Figures):
    """How many ``blocks``, and how many ``heads``: those to which no other lost block leads. ``largest``: what the head
    retains that retains most."""

    ids = ("lost-blocks",)
    blocks: int
    heads: int
    largest: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """All of them together, by the graph of blocks: of few blocks, or in detail. None where memory is lacking that
    may lead to them."""
    references = evidence.block_references
    if references is None or references.graph.is_cut:
        return []
    rows = [row for row in references.graph.unreachable(0) if not row.by_stray]
    size = sum(row.bytes for row in rows) - evidence.absent_unreached(references)
    if not evidence.worth(size):
        return []
    heads = references.graph.lost_heads(1)
    figures = LostBlocks(sum(row.count for row in rows), heads.count, heads.rows[0].retained)
    return [Finding("lost-blocks", size, figures, evidence.line("unreachable"))]
