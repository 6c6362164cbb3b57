"""Run the gdbheap command for ``python -m gdbheap``."""

try:
    from gdbheap.commands.shell.main import script
except ModuleNotFoundError as missing:
    # In the folder of a checkout, -m finds its sources before what is installed.
    if missing.name != "gdbheap.commands":
        raise
    raise SystemExit("gdbheap: this folder has the sources, not an installation. Run: .venv/bin/gdbheap") from None

if __name__ == "__main__":
    script()
