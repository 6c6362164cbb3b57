"""Write docs/skips.md: why tests may be skipped, and what lets them run. Without --write, print it.

The reasons are read from the calls of pytest.skip, skipif and importorskip in tests/. Each must match a line of RULES,
so that a test with a new reason needs a line that says what lets it run, or why nothing does.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "skips.md"
# Programs that are targets, not tests.
APART = {"programs", "reports"}
INSTALLED, SCRIPT, NOT_INSTALLED, MACHINE, CASE = (
    "Debian packages that `make test` installs",
    "Packages of other registries, and builds",
    "Debian packages that `make test` does not install",
    "The kernel, the machine or the user's rights",
    "Cases that do not exist",
)
LACKING = "nothing: this release, build or moment does not have the tested feature"
# Each heading, with the pattern of its reasons, and what lets their tests run.
RULES = [
    (
        CASE,
        r"in the root folder$|^\((reason|suite)\)$",
        "nothing: another part of the suite runs the test, or the test gives its own reason",
    ),
    (
        INSTALLED,
        r"no gcc|no C compiler|no compiler$|no {compiler}|no {compiler\[0\]}|no static libc|static glibc",
        "gcc, libc6-dev",
    ),
    (INSTALLED, r"no g\+\+|no C\+\+|no LeakSanitizer|AddressSanitizer", "g++"),
    (INSTALLED, r"no gdb$|there is no gdb|no gcore|no gdbserver", "gdb, gdbserver"),
    (INSTALLED, r"no strace", "strace"),
    (INSTALLED, r"no sqlite3", "sqlite3"),
    (INSTALLED, r"OpenSSL", "libssl-dev"),
    (INSTALLED, r"no zsh|no {command\[0\]}|no bash", "zsh, fish, bash; for packed cores zstd, lz4 and xz-utils"),
    (INSTALLED, r"no readelf|no objcopy|there is no strip|no {name}$", "binutils, which gcc depends on"),
    (INSTALLED, r"no rustc|no cargo", "rustc-web, or rustup"),
    (INSTALLED, r"no musl-gcc", "musl-tools"),
    (
        INSTALLED,
        r"^no lib{|library of (je|mi)malloc here|debug symbols of libc|no {path}|no {PRELOADED}",
        "libjemalloc2, libtcmalloc-minimal4, libmimalloc2.0",
    ),
    (SCRIPT, r"^import |no pyarrow|not installed|no mcp", "gdbheap's extras, which `make build` installs"),
    (
        SCRIPT,
        r"build/packages|Python with numpy|no {module}|{missing\[0\]}",
        "`scripts/packages.sh few` (`make test` runs it), or `scripts/packages.sh many` for the other packages",
    ),
    (SCRIPT, r"jemalloc that samples", "`scripts/jemallocs.sh`"),
    (SCRIPT, r"mimalloc", "`scripts/mimallocs.sh`"),
    (SCRIPT, r"suites\.sh|no huge page allocator", "`scripts/suites.sh`"),
    (SCRIPT, r"musl|Alpine", "`scripts/musls.sh`"),
    (
        SCRIPT,
        r"CPython|such Python|interpreter here|own library",
        "more interpreters: [interpreters.md](interpreters.md)",
    ),
    (SCRIPT, r"TORCH_PYTHON", "a Python with torch (some gigabytes)"),
    (SCRIPT, r"build/node", "npm"),
    (SCRIPT, r"actionlint", "actionlint (a program in Go)"),
    (NOT_INSTALLED, r"PostgreSQL|pg_recvlogical|user postgres", "postgresql (its package starts a service)"),
    (NOT_INSTALLED, r"redis", "redis-server 7 (its package starts a service)"),
    (NOT_INSTALLED, r"no go\b", "golang-go: 330 MB for three tests"),
    (NOT_INSTALLED, r"java", "default-jdk: 400 MB for one test"),
    (NOT_INSTALLED, r"no node", "nodejs: 190 MB for three tests"),
    (NOT_INSTALLED, r"on the path$", "ruby, php, perl and other runtimes: one test each, which reads their processes"),
    (
        NOT_INSTALLED,
        r"promtool",
        "prometheus (96 MB and a service); without it, promql-parser checks the same expressions",
    ),
    (NOT_INSTALLED, r"valgrind", "valgrind: 78 MB for one test"),
    (NOT_INSTALLED, r"systemd-analyze", "systemd, which many containers lack"),
    (NOT_INSTALLED, r"Debian: apt install", "the package that the reason names, with a rarely used allocator"),
    (
        MACHINE,
        r"root|another user|nobody|users?\b|rights|permission|owner",
        "root's rights, and another user as whom root can run programs",
    ),
    (MACHINE, r"control group", "a control group hierarchy to which root can write"),
    (
        MACHINE,
        r"namespace|mounted|mount |overlay|tmpfs|unshare|device",
        "a container that permits namespaces and mounts",
    ),
    (MACHINE, r"huge", "transparent huge pages"),
    (MACHINE, r"x86-64|AMX|fixed|32-bit|number of ptrace", "x86-64, or another processor"),
    (
        MACHINE,
        r"kernel|Linux|seccomp|leases|close_range|swap|memory|ptrace|limit|threads|/dev/full|/sys",
        "a newer kernel, or other kernel settings",
    ),
    (MACHINE, r"file system|folder for tests|SQLite", "another file system"),
    (MACHINE, r"terminal|no sleep", "a machine with pseudo-terminals and coreutils"),
    (MACHINE, r"git", "git, and a checkout made with git"),
    (
        CASE,
        r"Sanitizer|3\.6|padding|be linked|damage|such answer|linker|machine busy|thing else|asyncio|strace|workflow",
        LACKING,
    ),
    (CASE, r"glibc|libc has|release|very same|too few objects|does not work|BROWSERS", LACKING),
]


def text_of(node: ast.expr) -> str:
    """Return the text of a reason, with computed parts in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    return f"({ast.unparse(node)})"


def reasons(text: str) -> Iterator[str]:
    """Yield the reason of each call that may skip a test."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        named = [word.value for word in node.keywords if word.arg == "reason"]
        if name == "importorskip":
            yield f"import {text_of(node.args[0])}"
        elif name in ("skip", "skipif") and (named or node.args):
            yield from map(text_of, branches((named or node.args)[0]))


def branches(node: ast.expr) -> list[ast.expr]:
    """Return the texts that an expression may give: both branches of a conditional expression, else the expression."""
    return [*branches(node.body), *branches(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def plain(reason: str) -> str:
    """Return a reason for people: a word in capitals instead of each computed part, and no code."""
    if reason in ("(reason)", "(suite)"):
        return "the test's own reason"
    return re.sub(r"\{([^{}]*)\}", lambda part: word_for(part[1]), reason)


def word_for(code: str) -> str:
    """Return a word in capitals for a computed part of a reason: the name of the value, or OUTPUT for output."""
    joined = re.search(r"join\((\w+)\)", code)
    name = joined[1] if joined else re.split(r"[^\w.]", code)[0].split(".")[-1 if "executable" in code else 0]
    return "OUTPUT" if name in ("done", "said") else name.upper().replace("_", " ")


def rule_of(reason: str) -> tuple[str, str]:
    """Return the heading for a reason, and what lets its tests run. Raises SystemExit if no rule matches."""
    for heading, pattern, lift in RULES:
        if re.search(pattern, reason):
            return heading, lift
    raise SystemExit(f"scripts/skips.py has no rule for a test that is skipped because: {reason}")


def rows() -> dict[tuple[str, str], dict[str, set[str]]]:
    """Return the reasons for each heading and its remedy: each reason with the files that have it."""
    found: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not APART & set(path.parts):
            for reason in reasons(path.read_text(encoding="utf-8")):
                found[rule_of(reason)][reason].add(path.stem)
    return found


def page() -> str:
    """Return the page."""
    found = rows()
    lines = [
        "# Skipped tests\n",
        "If something that a test needs is missing, the test is skipped, and pytest prints the reason at its end.",
        "The tables below list all reasons, and what the tests need. `scripts/skips.py --write` makes them from the",
        "tests. pytest prints a name or a text instead of each word in capitals, such as PATH.\n",
    ]
    for heading in (INSTALLED, SCRIPT, NOT_INSTALLED, MACHINE, CASE):
        lines += [f"## {heading}", "| what the tests need | reasons | tests |", "| --- | --- | --- |"]
        for lift in dict.fromkeys(lift for own, _pattern, lift in RULES if own == heading):
            if by_reason := found.get((heading, lift)):
                files = sorted(set().union(*by_reason.values()))
                more = f" and {len(files) - 3} more" if files[3:] else ""
                shown = ", ".join(f"`{name}`" for name in files[:3]) + more
                told = "; ".join(sorted({plain(reason).replace("|", "\\|") for reason in by_reason}))
                lines.append(f"| {lift} | {told} | {shown} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Print the page, or write it."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: skips.py [--write]")
    if sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
