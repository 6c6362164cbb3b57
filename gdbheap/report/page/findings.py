"""The page's section of findings: memory that could be freed or saved, with advice and lines to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.page.html import Section, paragraph, safe
from gdbheap.report.text.style import Style
from gdbheap.report.words.findings import Numbers, advice_or_none, numbers_of, text_or_none
from gdbheap.report.words.ledger import advice_sentence, commands_of, heading_of, no_findings
from gdbheap.text import IN_SHELL, as_typed

if TYPE_CHECKING:
    from gdbheap.findings.finding import Finding
    from gdbheap.first_page.ledger import Ledger

__all__ = ["findings_section"]

TITLE = "Findings"


def findings_section(answer: Ledger, style: Style) -> Section:
    """Return the section with one paragraph for each finding."""
    if not answer.findings:
        return Section("findings", TITLE, paragraph(no_findings(answer)))
    numbers = numbers_of(answer.findings)
    items = "".join(_item(finding, style, numbers) for finding in answer.findings)
    return Section(
        "findings", TITLE, f'{paragraph(f"{heading_of(answer.findings)}.")}<ol class="findings">\n{items}</ol>\n'
    )


def _item(finding: Finding, style: Style, numbers: Numbers) -> str:
    size = f"{style.bytes(finding.bytes)}{style.of_rss(finding.bytes)}"
    worth = f'<strong data-finding="{safe(finding.id)}" data-v="{finding.bytes}">{safe(size)}</strong>'
    text = safe(as_typed(text_or_none(finding, numbers) or finding.id, IN_SHELL), 4000)
    return f"<li><p>{worth}: {text}.</p>\n{_advice(finding)}</li>\n"


def _advice(finding: Finding) -> str:
    advice = advice_or_none(finding)
    if advice is None:
        return ""
    lines = "\n".join(safe(line, 2000) for line in commands_of(finding))
    paste = f'<pre class="paste" tabindex="0">{lines}</pre>\n' if lines else ""
    return f"{paragraph(advice_sentence(advice))}{paste}"
