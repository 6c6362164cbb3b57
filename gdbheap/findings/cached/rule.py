"""Free blocks in threads' caches. Only the thread of a cache can soon reuse the blocks in it."""

from __future__ import annotations

from gdbheap.allocators.allocator import Allocator, Caching, Purpose
from gdbheap.dataclass import dataclass
from gdbheap.findings.allocator_copies import largest_first
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim


@dataclass(frozen=True)
class Cached(Figures):
    """The free blocks in the caches of one allocator.

    ``caches``: the number of threads' caches. ``blocks``: the number of free blocks in these caches and in caches that
    threads share. ``shared``: the bytes in shared caches. ``setting``: the setting that keeps caches small. ``owner``:
    the module with most of the caches, "" if only one module has any."""

    ids = ("cached-*",)
    title: str
    caches: int
    blocks: int
    shared: int
    setting: str
    owner: str


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident bytes of free blocks in caches, for each allocator that has
    enough of them.

    The findings are doubtful: the caches may be intended, as they make malloc fast. The list is empty if the finding's
    bytes are unknown or too few.
    """
    found = [(allocator, allocator.caching()) for allocator in evidence.heap.allocators]
    claims = [_claim(evidence, allocator, caching) for allocator, caching in found if caching is not None]
    return [claim for claim in claims if evidence.worth(claim.finding.bytes)]


def _claim(evidence: Evidence, allocator: Allocator, caching: Caching) -> FindingClaim:
    size = evidence.resident_of(caching.ranges)
    remedy, owners = {}, [""]
    if evidence.worth(size):
        owners = largest_first(allocator, ((pair, pair[1] - pair[0]) for pair in caching.ranges)) or [""]
        remedy = allocator.remedy(Purpose.CACHES, owners[0])
    setting = " ".join(f"{name}={value}" for name, value in remedy.items())
    owner = owners[0] if len(owners) > 1 else ""
    figures = Cached(allocator.title, caching.caches, caching.blocks, caching.shared, setting, owner)
    line = evidence.line("sizes")
    finding = Finding(f"cached-{allocator.name}", size, figures, line, remedy, doubtful=True)
    return FindingClaim(finding, lambda: caching.ranges)
