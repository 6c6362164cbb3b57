"""Remove unsafe content from the findings in a file that anybody may have written. Their texts are shown; their
commands are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gdbheap.allocators.runtimes import kinds
from gdbheap.findings.finding import Figures, Finding
from gdbheap.findings.settings import lines_to_paste

__all__ = ["of_file"]

# Numeric settings and switches of an allocator: no path, and nothing that a shell reads as more than one word.
OF_MALLOC = re.compile(r"\A(?:[A-Z_]*MALLOC_[A-Z_]+=[a-z0-9_:,-]+|GLIBC_TUNABLES=glibc\.malloc\.[a-z_]+=[0-9]+)")


def of_file(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a file without their commands, and without settings that gdbheap would never advise.

    The remaining settings become lines to paste. Findings without a text in this release are dropped.
    """
    return [_harmless(each) for each in findings if isinstance(each.figures, Figures)]


def _harmless(finding: Finding) -> Finding:
    known = {pair for kind in kinds() for pair in kind.environment.items()}
    settings = {
        name: value
        for name, value in finding.environment.items()
        if (name, value) in known or OF_MALLOC.fullmatch(f"{name}={value}")
    }
    # Only the remedy of an alternative is shown.
    others = [replace(each, commands=[], environment={}, alternatives=[])
              for each in finding.alternatives if isinstance(each.figures, Figures)]  # fmt: skip
    return replace(finding, environment=settings, commands=lines_to_paste(settings), alternatives=others)
