# The checks that scripts/arm64_machine.sh runs in the aarch64 machine: the wheel as a user installs it, and tests of live processes.
# ONLY: tests to run instead of these.
mark() { read -r up _ < /proc/uptime; echo "== after $up s: $*"; }
echo core > /proc/sys/kernel/core_pattern
uname -a
mark "pages of $(getconf PAGESIZE) bytes"
pip install --no-index --no-deps --break-system-packages --root-user-action=ignore -q /srv/*.whl || exit 1
ln -s /usr/local/bin/gdbheap /usr/local/bin/gdbheap-python /usr/bin/
mark "the wheel is installed"
python3 -c 'import time; held = [str(i) for i in range(60_000)]; time.sleep(10_000)' & target=$!
sleep 3
gdbheap $target || exit 1
mark "the first page"
kill $target
# Stops; stops at 200 random moments of 8 threads in malloc; 300 kills of gdbheap; copies; figures of
# malloc and pymalloc, of processes and of cores by gdb and by the kernel; calls of malloc_trim() and malloc_stats().
LIVE="tests/test_stop.py tests/test_any_moment.py tests/test_registers.py tests/test_unpatched_machine.py
tests/test_oracle_pools.py::test_pools_equal_debugmallocstats tests/test_oracle_arenas.py tests/test_clone.py
tests/test_undone_calls.py tests/test_oracle_trim.py::test_python tests/test_oracle_pyobjects.py tests/test_oracle_diff.py::test_types"
# shellcheck disable=SC2086
python3 -m pytest -q -p no:cacheprovider --timeout=1200 --durations=15 ${ONLY:-$LIVE}
