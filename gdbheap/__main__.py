"""Run the gdbheap command for ``python -m gdbheap``."""

from gdbheap.commands.shell.main import script

if __name__ == "__main__":
    script()
