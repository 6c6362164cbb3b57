"""``heap check-advice`` for people: a sentence for each setting, then what is still advised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.style import Style
from gdbheap.report.tables import join

if TYPE_CHECKING:
    from gdbheap.answers.check_advice import CheckAdvice, Other, Setting

__all__ = ["render"]

ABOUT = {
    "large-holes": "holes of 128 KiB or more",
    "tops": "free memory at the ends of all arenas",
    "thread-tops": "free memory at the ends of threads' arenas",
}
HOW = {"set": "set by the program or by glibc's tunables", "default": "the default", "risen": "it has risen by itself"}


def render(answer: CheckAdvice, style: Style) -> str:
    """Whether each setting is there and in force, and what it is about now."""
    lines = [style.filled(_sentence(setting, style)) for setting in answer.settings]
    lines += [style.filled(_other(other)) for other in answer.others]
    unknown = "" if answer.environment else "What the program was started with is not known here."
    return join("\n".join(lines), unknown, "\n".join(_findings(answer, style)))


def _sentence(setting: Setting, style: Style) -> str:
    value = _in_force(setting, style)
    if setting.value is None:
        state = f"{setting.name} is not set: {value}{_because(setting)}"
    else:
        name = setting.name if setting.by == setting.name else f"{setting.by} for {setting.name}"
        verdict = "is set and in force" if setting.took else "is set and not in force"
        state = f"{name}={setting.value} {verdict}: {value}"
    size = "not known" if setting.bytes is None else style.bytes(setting.bytes)
    return f"{state}; {ABOUT[setting.about]}: {size}."


def _in_force(setting: Setting, style: Style) -> str:
    if setting.field == "arena_max":
        return f"at most {setting.in_force} arenas may be made" if setting.in_force else "arena_max is not set"
    return f"{setting.field} is {style.bytes(setting.in_force)}"


def _because(setting: Setting) -> str:
    return "" if setting.field == "arena_max" and not setting.in_force else f" ({HOW[setting.how]})"


def _other(other: Other) -> str:
    value = f"={other.value} is set" if other.value is not None else " is not set"
    return f"{other.name}{value}; whether {other.whose} heeds it only it can tell."


def _findings(answer: CheckAdvice, style: Style) -> list[str]:
    if not answer.findings:
        return ["'heap' advises no setting now."]
    lines = ["What 'heap' advises now:"]
    for finding in answer.findings:
        settings = " ".join(f"{name}={value}" for name, value in finding.environment.items())
        lines.append(f"  {settings}: {finding.id}, {style.bytes(finding.bytes)}{style.of_rss(finding.bytes)}")
    return lines
