"""The largest memory contexts of a PostgreSQL backend: all contexts with one name, or all contexts of prepared
statements.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import partial

from gdbheap.contents.postgresql.contexts import Context, PostgresqlContent, named_contexts
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.targets.ranges import joined

# plancache.c: each prepared statement has contexts with the first two names; it has one with the last name while it has
# its own plan.
SOURCE = "CachedPlanSource"
OF_STATEMENTS = (SOURCE, "CachedPlanQuery", "CachedPlan")
PREPARED = "prepared statements"
AND = " and "
OF_CONTEXTS = re.compile(r"^(?:[\d,]+ )?memory contexts? (.+)$")


@dataclass(frozen=True)
class LargestContext(Figures):
    """The contexts with one ``name``, or those of all prepared statements.

    ``count``: their number. ``total``: their bytes from malloc; ``free``: how many of these are free. ``statements``:
    the number of prepared statements to which they belong; 0 for other contexts."""

    ids = ("postgresql-context",)
    name: str
    total: int
    free: int
    count: int = 1
    statements: int = field(default=0, metadata=UNLISTED)

    def is_about(self, holder: str) -> bool:
        """Return whether the holder named ``holder`` consists of contexts that this finding counts."""
        found = OF_CONTEXTS.search(holder)
        return found is not None and found[1] in self.name.split(AND)


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the contexts of one name, or about all contexts of prepared statements: the
    group with the most bytes. The list is empty if the finding's bytes are unknown or too few.
    """
    if evidence.heap.target.refusal is not None:
        return []
    groups = named_contexts(evidence.heap.content(PostgresqlContent).contexts)
    groups.pop(None, None)
    groups[PREPARED] = [context for name in OF_STATEMENTS for context in groups.pop(name, [])]
    largest = max(groups.values(), key=lambda group: sum(context.total for context in group))
    ranges = joined(sorted(pair for context in largest for pair in context.blocks))
    size = evidence.known_bytes_of(ranges)
    if not evidence.worth(size):
        return []
    figures = _figures(largest)
    finding = Finding("postgresql-context", size, figures, evidence.line("contexts"))
    return [FindingClaim(finding, partial(list, ranges))]


def _figures(group: list[Context]) -> LargestContext:
    names = sorted({context.name for context in group})
    total, free = sum(context.total for context in group), sum(context.free for context in group)
    statements = sum(context.name == SOURCE for context in group)
    return LargestContext(AND.join(names), total, free, len(group), statements)
