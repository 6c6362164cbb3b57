"""Public reports about memory, as programs (tests/reports): start each one, and check the required parts of the first
page.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.installed import python_with
from support.planted import tool
from support.postgresql import Server, cluster
from support.programs import PATIENCE, Running, allow_cores, end_group, gdbheap, plain_environment
from support.terminal import on_terminal

FOLDER = Path(__file__).resolve().parent.parent / "reports"
PRELOADED = "libjemalloc.so.2"
QUIET = 0.3
# polars' jemalloc keeps freed pages for ten seconds, or until another free: 3 to 66 MiB of RSS would have no owner, and
# chance would decide whether a holder has a quarter of it.
POLARS_KEEPS_NOTHING = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
_built = tempfile.TemporaryDirectory(prefix="gdbheap-reports-")


@dataclass(frozen=True)
class Report:
    """A public report.

    ``program``: its program in tests/reports; ``issue``: its origin; ``cause``, ``fix``: the patterns that name the
    cause and the fix; ``modules``: the modules that Python has to import; ``core``: the kernel's core is the target.
    """

    program: str
    issue: str
    truth: str
    cause: str
    fix: str
    modules: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    core: bool = False
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the program's name without its suffix, and the arguments."""
        return " ".join([Path(self.program).stem, *self.arguments])


def words(text: str) -> str:
    """Return a text with single spaces for all white space."""
    return " ".join(text.split())


def page_of(target: str, *options: str) -> str:
    """Return the first page as it is written to a pipe."""
    done = gdbheap(target, *options)
    # A damaged core has another exit status.
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    return done.stdout


def lines_to_first_fix(target: str, *options: str) -> int:
    """Return how many lines of 80 columns the page has up to the end of its first finding with its fix. If there is no
    finding, count up to the end of its holders.
    """
    shown, _status = on_terminal([target, *options], 80, NO_COLOR="1")
    # The terminal also shows the progress and the length of the stop.
    lines = [re.split(r"\r|\033\[K", line)[-1] for line in shown.rstrip().split("\n")]
    lines = [line for line in lines if not line.startswith("gdbheap: ")]
    first = next((place for place, line in enumerate(lines) if line.startswith("Findings")), None)
    ends = ("2. ", "Next", "what  ")
    after = range(len(lines) if first is None else first + 1, len(lines))
    end = next((place for place in after if not lines[place].strip() or lines[place].startswith(ends)), len(lines))
    return end


@contextlib.contextmanager
def started(report: Report, directory: Path) -> Iterator[str]:
    """Yield the target of a report, ready: a pid, or the path of a core.

    Skip the test if something that it needs is missing.
    """
    folder = Path(tempfile.mkdtemp(dir=directory))
    starter = SERVERS.get(report.program)
    if starter is not None:
        with starter(folder) as pid:
            rest(pid)
            yield str(pid)
        return
    with ready(command_of(report, folder), folder, dict(report.environment)) as target:
        rest(target.pid)
        yield str(target.aborted_core() if report.core else target.pid)


@contextlib.contextmanager
def ready(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Running]:
    """Yield a command that has printed READY. At the end it is killed, and its shared memory, which has its pid in its
    name, is removed.
    """
    with serving(command, folder, environment, subprocess.PIPE) as target:
        output = folder / "stderr"
        try:
            wait_for(lambda: b"READY" in output.read_bytes(), target)
            yield target
        finally:
            for left in Path("/dev/shm").glob(f"feed_{target.pid}_*"):
                left.unlink()


def wait_for(is_so: Callable[[], object], target: Running) -> None:
    """Return when the condition holds; fail if the target ends first."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert target.process.poll() is None and time.monotonic() < deadline, target.stderr[-2000:]
        time.sleep(0.02)


def rest(pid: int) -> None:
    """Return when the process uses no processor time, or after five seconds if it never rests."""
    last, since, deadline = "", time.monotonic(), time.monotonic() + 5
    while time.monotonic() < min(since + QUIET, deadline):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if (spent := f"{fields[11]} {fields[12]}") != last:
            last, since = spent, time.monotonic()
        time.sleep(0.02)


def command_of(report: Report, folder: Path) -> list[str]:
    """Return the command of a report's program, compiled if needed."""
    source = FOLDER / report.program
    if report.program.endswith(".py"):
        python = python_with(*report.modules) if report.modules else sys.executable
        return [python, "-s", str(source), *report.arguments]
    if report.program.endswith(".java"):
        subprocess.run([tool("javac"), "-d", str(folder), str(source)], check=True)
        return [tool("java"), "-Xmx64m", "-cp", str(folder), source.stem]
    if report.program.endswith(".js"):
        return [tool("node"), "--expose-gc", str(source)]
    if report.program.endswith(".rb"):
        return [tool("ruby"), str(source)]
    if report.program == "idle_jemalloc.c" and not preloaded():
        pytest.skip(f"no {PRELOADED}")
    return [str(compiled(report.program)), *report.arguments]


@functools.cache
def compiled(program: str) -> Path:
    """Return the executable of a program of tests/reports, compiled once per run."""
    source, executable = FOLDER / program, Path(_built.name) / Path(program).stem
    compilers = {
        ".c": ("gcc", "-O0" if source.stem == "overflow" else "-O1", "-g", "-pthread"),
        ".cpp": ("g++", "-O1", "-pthread"),
        ".rs": ("rustc", "-O", "-g"),
    }
    compiler, *flags = compilers[source.suffix]
    subprocess.run([tool(compiler), *flags, str(source), "-o", str(executable)], check=True, capture_output=True)
    return executable


@functools.cache
def preloaded() -> bool:
    """Return whether the loader finds jemalloc."""
    done = subprocess.run(["true"], env={"LD_PRELOAD": PRELOADED, "PATH": os.environ["PATH"]}, capture_output=True)
    return not done.stderr


@contextlib.contextmanager
def gunicorn(folder: Path) -> Iterator[int]:
    """Yield the pid of gunicorn's worker after 6,000 requests of cached_method.py."""
    place = folder / "socket"
    command = [python_with("gunicorn", "flask"), "-m", "gunicorn", "--workers=1", "--threads=4", "--chdir", str(FOLDER)]
    command += ["--bind", f"unix:{place}", "--pid", str(folder / "pid"), "cached_method:app"]
    with serving(command, folder, {"PYTHONDONTWRITEBYTECODE": "1"}) as target:
        wait_for(place.exists, target)
        children = Path(f"/proc/{target.pid}/task/{target.pid}/children")
        wait_for(lambda: children.read_text().split(), target)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = connected(place)
        for number in range(6000):
            connection.request("GET", f"/order/{number}?currency=EUR")
            connection.getresponse().read()
        connection.close()
        yield int(children.read_text().split()[0])


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[int]:
    """Yield the pid of a redis-server after 40,000 EVALs of different scripts."""
    place = folder / "socket"
    command = [redis_server(), "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(folder)]
    with serving(command, folder, {}) as target:
        wait_for(place.exists, target)
        with connected(place) as server, server.makefile("rb") as answers:
            for number in range(40_000):
                server.sendall(evaluation(number))
                answers.readline()
        yield target.pid


def evaluation(number: int) -> bytes:
    """Return an EVAL of a script with a unique text."""
    stock = f"local stock = redis.call('GET', 'item:{number}')"
    script = f"{stock} if stock then return stock + {number} else return {number} * 3 end".encode()
    return b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(script), script)


def redis_server() -> str:
    """Return the redis-server in PATH, of 7.0 or later: earlier ones keep scripts in the server's own allocator."""
    found = shutil.which("redis-server") or pytest.skip("no redis-server")
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"v=(\d+)", said)
    if version is None or int(version[1]) < 7:
        pytest.skip(f"a redis-server before 7.0: {said.strip()}")
    return found


@contextlib.contextmanager
def serving(
    command: list[str], folder: Path, environment: dict[str, str], given: int = subprocess.DEVNULL
) -> Iterator[Running]:
    """Yield a server, which is ended with its children. ``given``: its standard input, as for subprocess."""
    with (folder / "stderr").open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=given,
            stdout=file,
            stderr=file,
            preexec_fn=allow_cores,
            start_new_session=True,
            env={**plain_environment(), **environment},
        )
    target = Running(process, folder, command[0])
    try:
        yield target
    finally:
        end_group(process)
        target.close()


def connected(place: Path) -> socket.socket:
    """Return a connection to a Unix socket."""
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(place))
    return made


@contextlib.contextmanager
def postgresql(_folder: Path) -> Iterator[int]:
    """Yield the pid of a backend with 4,000 prepared statements."""
    with cluster() as root:
        session = Server(root)
        try:
            session.ask("create table orders(id int primary key, customer int, total numeric, note text)")
            for number in range(1, 4001):
                session.ask(statement(number))
            yield session.pid
        finally:
            session.close()


def statement(number: int) -> str:
    """Return a PREPARE with a unique text, and its EXECUTE."""
    query = f"select o.id, o.total * {number}, o.note || 'n{number}' from orders o join orders q on q.id = o.customer"
    where = f"where o.customer = $1 + {number} and o.note <> 'x{number}'"
    return f"prepare p{number}(int) as {query} {where}; execute p{number}(1)"


SERVERS = {"gunicorn": gunicorn, "redis": redis, "postgresql": postgresql}
# The advice for a holder about which nothing more is known.
LIMIT = r"set a limit or drop data that is no longer used"
TRIM = r"malloc_trim\(0\).*gdbheap trim \d+ --yes"
REPORTS: tuple[Report, ...] = (
    Report(
        "views.py",
        "numpy/numpy#10273",
        "60 views of 80 bytes keep 60 arrays of 240,000,000 bytes alive",
        r"60 views \(numpy\.ndarray\) of 4\.7 KiB keep 229\.0 MiB.*previews",
        r"x\[:10\]\.copy\(\)",
        ("numpy",),
    ),
    Report(
        "arenas.py",
        "dask/dask#3530",
        "malloc_trim(0) returns 79 MiB of free memory between small results",
        r"holes? outside top chunks keeps? free pages resident.*no thread uses \d+ of these arenas",
        TRIM,
        ("numpy",),
    ),
    Report(
        "figures.py",
        "matplotlib/matplotlib#8519",
        "40 figures were never closed: 222 MiB",
        r"22\d\.\d MiB 7\d\.\d matplotlib\._pylab_helpers\.Gcf\.figs OrderedDict of 40",
        r"plt\.close\(figure\)",
        ("matplotlib",),
    ),
    Report(
        "gunicorn",
        "PyCQA/flake8#1573",
        "an lru_cache without a limit keeps 6,000 views with their payloads: 80 MiB",
        r"79\.\d MiB [\d.]+ cached_method\.OrderView\.total lru_cache without a limit, 6,000 entries",
        r"maxsize.*cache_clear\(\)",
    ),
    Report(
        "kept_traceback.py",
        "celery/celery#8882",
        "stored exceptions keep their frames alive, whose variable `scratch` holds 89 MiB",
        r"held by results .*\.__traceback__.*local variable scratch in parse\(\) at kept_traceback\.py:\d+",
        r"[Kk]eep the text of an exception, or exception\.with_traceback\(None\)",
    ),
    Report(
        "module_dict.py",
        "the commonest leak in Python",
        "`cache` keeps 20,000 entries of 4 KiB: 82 MiB",
        r"82\.0 MiB 9\d\.\d cache dict of 20,000",
        LIMIT,
    ),
    Report(
        "ended_thread.cpp",
        "YosysHQ/yosys#5664",
        "the arena of a thread that ended has 70 MiB free",
        r"70\.\d MiB in 1 arena of threads; no thread uses that arena any more",
        TRIM,
    ),
    Report(
        "pool_peaks.cpp",
        "amule-org/amule#1095",
        "each of 12 arenas keeps the memory of one thread's peak; a single arena would need a tenth",
        r"1[23]\d\.\d MiB in 12 arenas of threads",
        r"gdbheap trace -o calls\.log.*gdbheap replay calls\.log --what-if",
    ),
    Report(
        "tls_contexts.py",
        "encode/httpx#978",
        "150 objects of ssl.SSLContext hold 100 MiB",
        r"10[0-2]\.\d MiB [\d.]+ clients .*150 x ssl\.SSLContext",
        r"Create one context and use it for all connections",
        ("certifi",),
    ),
    Report(
        "forked_readers.py",
        "pytorch/pytorch#13246",
        "two workers only read a list, but 92 MiB became private because reference counts changed",
        r"9\d\.\d MiB reference counts that rose and fell again",
        r"array\.array, numpy, Arrow or an mmap",
        options=("--children",),
    ),
    Report(
        "redis",
        "redis/redis#1688",
        "40,000 scripts of EVAL take 31 MiB in the Lua interpreter",
        r"redis-server \(pid.*3\d\.\d MiB [\d.]+ 'lctx' in redis-server",
        r"SCRIPT FLUSH",
    ),
    Report(
        "worker_threads.rb",
        "mikeperham.com: Taming Rails memory bloat",
        "malloc_trim(0) returns 221 MiB",
        r"holes? outside top chunks keeps? free pages resident",
        TRIM,
    ),
    Report(
        "deflates.js",
        "nodejs/help#1942",
        "malloc_trim(0) returns 13 MiB that zlib freed",
        r"1\d\.\d MiB \(.*holes? outside top chunks keeps? free pages resident",
        TRIM,
    ),
    Report(
        "Deflaters.java",
        "HdrHistogram/HdrHistogram#85",
        "2,400 buffers of 64 KiB belong to Deflaters and Inflaters",
        r"objects in the Java heap \(Deflater, Inflater.*2,400 x block of 65,552 bytes",
        r"call end\(\) on each Deflater and Inflater",
    ),
    Report(
        "huge_pages.c",
        "jemalloc/jemalloc#1674",
        "160 MiB of huge pages, of which 159.7 MiB are zeros",
        r"transparent huge pages: 159\.7 MiB of 160\.0 MiB contains only zeros",
        r"MADV_NOHUGEPAGE.*PR_SET_THP_DISABLE",
    ),
    Report(
        "huge_malloc.c",
        "gperftools/gperftools#1073",
        "60 blocks of malloc lie in huge pages, and nearly all of their bytes are zeros",
        r"transparent huge pages: 11\d\.\d MiB of 11\d\.\d MiB contains only zeros",
        r"GLIBC_TUNABLES=glibc\.malloc\.hugetlb=0",
        environment=(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824"),),
    ),
    Report(
        "lazily_freed.c",
        "microsoft/mimalloc#776",
        "the program uses 10 of 160 MiB, and has freed 150 by madvise(MADV_FREE)",
        r"1[45]\d\.\d MiB \(.*the program freed this with madvise\(MADV_FREE\)\. .*RSS without it is 1\d\.\d MiB",
        r"Do nothing: the kernel takes these pages before memory runs out",
    ),
    Report(
        "shared_memory_files.py",
        "vllm-project/vllm#51317",
        "no process maps three files of 20 MiB in /dev/shm",
        r"\d+\.0 MiB of shared memory is in \d+ files .*(feed_\d+_[012] 20\.0 MiB\W*[\w/]*){3}",
        r"[Rr]emove the files that nobody uses: unlink\(\)",
    ),
    Report(
        "overflow.c",
        "radareorg/radare2#688",
        "a text of 28 bytes is in a block of 24",
        r"malloc\(\): corrupted top size.*wrote beyond the end of the block.*sensor-00120-temperature-in",
        r"block is held by: 'rows'\+\w+ in overflow .*abort\(\) was reached from: main",
        core=True,
    ),
    Report(
        "overflow.c",
        "neuronsimulator/nrn#1303",
        "two rows point to the same unit, and both free it",
        r"ended by abort\(\): double free or corruption.*freed the block at 0x\w+ twice",
        r"remain in: 'rows'\+\w+ in overflow \+8 and 'rows'\+\w+ in overflow .*abort\(\) was reached from: main",
        arguments=("double",),
        core=True,
    ),
    Report(
        "pinned_top.cpp",
        "nodejs/node#21332",
        "the last string pins 174 MiB of free memory",
        r"174\.\d MiB in the main arena; the block after the largest hole is held by 'last\b",
        TRIM,
    ),
    Report(
        "idle_jemalloc.c",
        "pgdogdev/pgdog#1230",
        "158 MiB of dirty pages stay, because the idle program never calls jemalloc",
        r"158\.\d MiB .*jemalloc keeps \d+ free extents",
        r"MALLOC_CONF=background_thread:true",
        environment=(("LD_PRELOAD", PRELOADED),),
    ),
    Report(
        "labels.py",
        "perdy/starlette-prometheus#7",
        "two metrics have 4,000 label values each",
        r"17\.\d MiB [\d.]+ LATENCY\._metrics .*REQUESTS\._metrics",
        r"labels with few values",
        ("prometheus_client",),
    ),
    Report(
        "xml_names.py",
        "cebel/pyuniprot#5",
        "libxml2's dictionary of names takes 13.2 MiB",
        # The resident part of the 13.2 MiB.
        r"1[1-3]\.\d MiB [\d.]+ lxml\.etree\._ParserDictionaryContext",
        r"[Uu]se few different names for elements and attributes",
        ("lxml",),
    ),
    Report(
        "postgresql",
        "drogonframework/drogon#2533",
        "4,000 prepared statements take 62.5 MiB",
        r"4,000 memory contexts CachedPlanQuery.*4,000 memory contexts CachedPlanSource.*4,000 prepared statements",
        r"DEALLOCATE ALL.*statement cache",
    ),
    Report(
        "sqlite_caches.py",
        "syncthing/syncthing#10362",
        "the page caches of eight connections take 152 MiB",
        r"15[0-3]\.\d MiB [\d.]+ local\[…\] 8 x sqlite3\.Connection",
        r"PRAGMA cache_size.*shrink_memory",
    ),
    Report(
        "loggers.py",
        "DIRACGrid/DIRAC#5280",
        "logging's manager keeps a logger, with its records, for each job",
        r"logging\.Logger\.manager\.loggerDict dict of .*logging\.LogRecord",
        r"one logger with a LoggerAdapter",
    ),
    Report(
        "other_views.py",
        "views of other types",
        "views of four types keep ten buffers of 2,000,000 bytes each",
        r"views \(memoryview\).*views \(pyarrow\.lib\.DoubleArray\).*views \(polars\.series\.series\.Series\)",
        r"copy\(\) for an array, bytes\(x\) for a memoryview, x\.take\(.*x\.gather\(",
        ("numpy", "pyarrow", "polars"),
    ),
    Report(
        "array_overflow.py",
        "neuronsimulator/nrn#1303",
        "C code writes past the end of an array's data",
        r"ended by abort\(\): .*wrote beyond the end of the block at \w+: 1\.5 KiB, data of numpy\.ndarray",
        r"block is held by: sys\.modules\['__main__'\]\.guilty abort\(\) was reached from: \w+",
        ("numpy",),
        core=True,
    ),
    Report(
        "equal_strings.py",
        "rows of a database driver",
        "240,000 strings have 3 values: 14.7 MiB",
        r"1[45]\.\d MiB .*240,\d{3} of 2\d\d,\d{3} str objects are copies of",
        r"eep one copy of each value where the strings are created",
    ),
    Report(
        "DirectBuffers.java",
        "netty: direct buffer memory",
        "40 direct buffers take 57 MiB",
        r"57\.\d MiB [\d.]+ objects in the Java heap \(.*direct ByteBuffer.*40 x block of 1,503,232 bytes",
        r"direct ByteBuffers \(-XX:MaxDirectMemorySize limits them\)",
    ),
    Report(
        "reloaded_modules.py",
        "PrefectHQ/prefect#21692",
        "one file was loaded as 400 modules, which take 69 MiB",
        r"68\.\d MiB [\d.]+ 400 modules of \S*daily_report\.py",
        r"[Ii]mport the file once",
    ),
    Report(
        "channel.rs",
        "librefang#3580",
        "100,000 messages wait in a channel, and a nearly empty map has a table of 18.3 MiB",
        r"messages of a channel with \S+ waiting.*HashMap or HashSet table, \S+ KiB of 18\.3 MiB filled",
        r"[Ll]imit the length of the channel.*shrink_to_fit\(\)",
    ),
    Report(
        "onnx_session.py",
        "memory of an inference session",
        "the output takes 22.9 MiB, and the session takes the rest",
        r"outputs\S* .*ndarray of 4,000 x 1,500.*session\._sess|session\._sess.*outputs\S* ndarray of 4,000 x 1,500",
        r"22\.9 MiB [\d.]+ outputs",
        ("onnxruntime", "onnx"),
    ),
    Report(
        "polars_filter.py",
        "memory of a polars frame",
        "the filtered frame takes about 23 MiB",
        r"MiB [\d.]+ chosen DataFrame of 7\d\d,\d\d\d x 3.*removing it alone frees between \S+ \S+ and 2\d\.\d MiB",
        r"drop unused data from all its holders|drop data that is no longer used",
        ("polars",),
        environment=(POLARS_KEEPS_NOTHING,),
    ),
)
