"""Settings that advice names, and how to write them for a shell, systemd, Docker and Kubernetes."""

from __future__ import annotations

from gdbheap.text import Sentence

MMAP_THRESHOLD = {"MALLOC_MMAP_THRESHOLD_": "131072"}
TRIM_THRESHOLD = {"MALLOC_TRIM_THRESHOLD_": "131072"}
NO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}


def lines_to_paste(environment: dict[str, str]) -> list[str]:
    """Return each setting as a line for a shell, a systemd unit, ``docker run`` and a container's ``env:``."""
    return [Sentence(line) for name, value in environment.items() for line in _lines(name, value)]


def _lines(name: str, value: str) -> list[str]:
    return [
        shell_line(name, value),
        f"Environment={name}={value}",
        f"-e {name}={value}",
        f'- {{name: {name}, value: "{value}"}}',
    ]


def shell_line(name: str, value: str) -> str:
    """Return the shell command that sets a variable before the program starts."""
    return f"export {name}={value}"
