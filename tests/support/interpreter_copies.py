"""Copies of interpreters: with their own code, or without symbols."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.programs import ROOT_FOLDER, interpreter_of_release, stripped_library


def copied(release: str, folder: Path) -> tuple[list[str], dict[str, str], Path | None]:
    """Return a command and environment that run a copy of the interpreter's code, and the copy; none is needed in a
    root folder, whose files cannot be found for a core."""
    found = interpreter_of_release(release)
    if ROOT_FOLDER:
        return [found.executable], {}, None
    copy = folder / Path(found.library).name
    shutil.copy(found.library, copy)
    if found.library == found.executable:
        return [str(copy)], {"PYTHONHOME": str(Path(found.executable).parent.parent)}, copy
    return [found.executable], {"LD_LIBRARY_PATH": str(folder)}, copy


def without_symbols(release: str, kind: str) -> dict[str, str]:
    """Return the environment in which a release's program runs as that kind of build."""
    interpreter = interpreter_of_release(release)
    if interpreter.kind == kind:
        return {}
    if kind == "unstripped":
        pytest.skip(f"the CPython {release} here is stripped")
    return {"LD_LIBRARY_PATH": str(stripped_library(interpreter))}
