"""docs/library.md, docs/inside.md, the notebook and the server: every example is run and type-checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import KINDS, PATIENCE, Running, interpreters, python_program, running

import gdbheap

ROOT = Path(__file__).resolve().parent.parent
GUIDE, INSIDE = ROOT / "docs" / "library.md", ROOT / "docs" / "inside.md"
NOTEBOOK, SERVER = ROOT / "docs" / "examples" / "library.ipynb", ROOT / "docs" / "examples" / "inside_server.py"
PACKAGES = str(Path(gdbheap.__file__).parent.parent)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Runs blocks one after the other in one namespace; without pandas, up to the block that imports it.
RUN = """
import json, sys
sys.path.append(sys.argv[1])
import gdbheap
names = {}
for block in json.load(sys.stdin):
    try:
        exec(compile(block, block, "exec"), names)
    except gdbheap.Unsupported as error:
        assert "to_pandas" in block and "pandas, which is not installed" in str(error), block
print("all of them")
"""


def blocks(page: Path) -> list[str]:
    """Return the examples of a page."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with some memory, while it waits."""
    folder = tmp_path_factory.mktemp("guide")
    with running(python_program(KINDS[0], "holders_of_many", 40_000, 1), folder) as found:
        yield found


@pytest.mark.parametrize("release", ["3.9", "3.13", ""])
def test_the_guide(release: str, target: Running, tmp_path: Path) -> None:
    """Check the guide with two unchanged releases, and with the project's own Python, which has pandas."""
    found = interpreters(release) if release else ()
    if release and not found:
        pytest.skip(f"no CPython {release}")
    python = found[0].executable if found else sys.executable
    wanted = [block.replace("1234", str(target.pid)) for block in blocks(GUIDE)]
    assert len(wanted) == 10
    done = subprocess.run(
        [python, "-I", "-c", RUN, PACKAGES],
        input=json.dumps(wanted), capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.endswith("all of them\n"), done.stderr
    assert {"before.heap", "report.html", "now.heap", "now.html"} == {path.name for path in tmp_path.iterdir()}


def test_the_page_about_inside(tmp_path: Path) -> None:
    """Check the page's examples, and run the handler after its signal."""
    file = str(tmp_path / "now.heap")
    wanted = [block.replace("/var/tmp/now.heap", file) for block in blocks(INSIDE)]
    first, handler, route = wanted
    handler += f"\nimport os\nos.kill(os.getpid(), signal.SIGUSR2)\nassert os.path.exists({file!r})"
    route += "\nassert 'paused for' in asyncio.run(look_route())"
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, PACKAGES],
        input=json.dumps([first, handler, route]), capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.endswith("all of them\n"), done.stderr


def test_the_notebook(target: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each cell runs, that its value has a form for a notebook, and that the file has no output."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 8 and found["nbformat"] == 4 and not any(cell["outputs"] for cell in cells)
    for cell in cells:
        *lines, last = "".join(cell["source"]).replace("1234", str(target.pid)).splitlines()
        exec("\n".join(lines), names)
        shown = eval(last, names)
        assert shown is None or shown._repr_html_(), last


# argv: the packages, the server, a file.
SERVE = """
import asyncio, sys
packages, server, file = sys.argv[1:]
sys.path += [packages, server]
import inside_server as server
server.look.__defaults__ = (file,)
sent, said = [], []
async def send(message):
    sent.append(message)
for path, status in ((server.ROUTE, 200), ("/", 404)):
    sent.clear()
    asyncio.run(server.asgi({"type": "http", "path": path}, None, send))
    assert sent[0]["status"] == status and sent[1]["body"], sent
    assert server.wsgi({"PATH_INFO": path}, lambda line, headers: said.append(line))
    assert said.pop().startswith(str(status))
"""


def test_the_server(tmp_path: Path) -> None:
    """Check that both applications write the file, and have no other route."""
    file = tmp_path / "now.heap"
    words = [sys.executable, "-I", "-S", "-c", SERVE, PACKAGES, str(SERVER.parent), str(file)]
    subprocess.run(words, check=True, timeout=PATIENCE)
    assert gdbheap.open(file).pid


def test_examples_are_typed(tmp_path: Path) -> None:
    """Check that mypy --strict accepts the guide, the page about inside and the server, with the installed package."""
    for name, text in (("guide", "\n".join(blocks(GUIDE))), ("inside", "\n".join(blocks(INSIDE)))):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "server.py").write_text(SERVER.read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / "build" / "mypy-cache-guide"), "."]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
