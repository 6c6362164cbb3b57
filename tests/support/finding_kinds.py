"""The kinds of findings: the class of each one's figures."""

from __future__ import annotations

import importlib
import pkgutil

from gdbheap import findings
from gdbheap.findings.finding import Figures

__all__ = ["FOLDERS", "KINDS"]

FOLDERS = [found.name for found in pkgutil.iter_modules(findings.__path__) if found.ispkg]
for folder in FOLDERS:
    importlib.import_module(f"{findings.__name__}.{folder}.rule")
KINDS = sorted(Figures.__subclasses__(), key=lambda kind: kind.__name__)
