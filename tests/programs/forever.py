"""Run a module as the main program again and again, as ``python -m`` would: forever.py MODULE ARGUMENTS."""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Never return; an exit of the module is not an exit of this program."""
    arguments = sys.argv[1:]
    while True:
        sys.argv = list(arguments)
        try:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        except SystemExit:
            pass


if __name__ == "__main__":
    main()
