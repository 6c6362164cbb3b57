"""The text of ``heap check-advice``: the findings that advise a setting, then a sentence for each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import join

if TYPE_CHECKING:
    from gdbheap.first_page.check_advice import CheckAdvice, MallocSetting, Other

__all__ = ["render"]

ABOUT = {
    "large-holes": "holes of 128 KiB or more",
    "tops": "free memory at the ends of all arenas",
    "thread-tops": "free memory at the ends of threads' arenas",
    "huge-pages": "malloc's memory in huge pages",
}
HOW = {"set": "set by the program or by glibc's tunables", "default": "the default", "risen": "raised by glibc"}
ALL, PAGES = "arena_max", "hugetlb"
HUGE = (
    "malloc asks for no huge pages",
    "malloc asks for transparent huge pages",
    "malloc takes its pages from hugetlbfs",
)


def render(answer: CheckAdvice, style: Style) -> str:
    """Return the text of the answer. It begins with the settings that findings advise now. A sentence about each known
    setting follows: whether it is set, whether it is active, and which memory it affects.
    """
    known = answer.knows_environment
    lines = [style.filled(_sentence(setting, known, style)) for setting in answer.settings]
    lines += [style.filled(_other(other, known)) for other in answer.other_settings]
    unknown = "" if known else "The environment with which the program was started is unknown."
    return join("\n".join(_findings(answer, style)), "\n".join(lines), unknown)


def _sentence(setting: MallocSetting, known: bool, style: Style) -> str:
    value = _in_force(setting, style)
    if setting.value is None:
        state = f"{_unset(setting.name, known)}: {value}{_because(setting)}"
    else:
        name = setting.name if setting.by == setting.name else f"Through {setting.by}, {setting.name}"
        verdict = "is set and active" if setting.took else "is set, but not active"
        state = f"{name}={setting.value} {verdict}: {value}"
    size = "unknown" if setting.bytes is None else style.bytes(setting.bytes)
    return f"{state}; {ABOUT[setting.memory]}: {size}."


def _unset(name: str, known: bool) -> str:
    return f"{name} is not set" if known else f"Whether {name} was set is unknown"


def _in_force(setting: MallocSetting, style: Style) -> str:
    if setting.field == PAGES:
        return HUGE[setting.in_force]
    if setting.field == ALL:
        arenas = counted(setting.in_force, "arena")
        return f"at most {arenas} may be made" if setting.in_force else "arena_max is not set"
    return f"{setting.field} is {style.bytes(setting.in_force)}"


def _because(setting: MallocSetting) -> str:
    has_value = setting.field == ALL and setting.in_force
    return f" ({HOW[setting.how]})" if has_value or setting.field not in (ALL, PAGES) else ""


def _other(other: Other, known: bool) -> str:
    state = _unset(other.name, known) if other.value is None else f"{other.name}={other.value} is set"
    owner, _, _ = other.whose.partition("'")
    return f"{state}; only {owner} itself knows whether this setting is active."


def _findings(answer: CheckAdvice, style: Style) -> list[str]:
    if not answer.findings:
        return ["No setting is advised now."]
    lines = [_advised(answer)]
    for finding in answer.findings:
        settings = " ".join(f"{name}={value}" for name, value in finding.environment.items())
        already = " (already set)" if finding.id in answer.heeded else ""
        size = f"{style.bytes(finding.bytes)}{style.of_rss(finding.bytes)}"
        lines.append(f"  {settings}{already}: {finding.id}, {size}")
    return lines


def _advised(answer: CheckAdvice) -> str:
    """Return the line above the advised settings: how many there are, and how many of them are set."""
    count, heeded = len(answer.findings), len(answer.heeded)
    if count == 1:
        return f"1 setting is advised, {'and is' if heeded else 'but is not'} set:"
    return f"{count} settings are advised, and {heeded or 'none'} of them {'is' if heeded < 2 else 'are'} set:"
