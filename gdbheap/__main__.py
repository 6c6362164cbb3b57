"""``python -m gdbheap`` is the command."""

from gdbheap.commands.shell.main import script

if __name__ == "__main__":
    script()
