# The checks that scripts/arm64_machine.sh runs in the aarch64 machine: the wheel as a user installs it, and tests.
# ONLY: tests to run instead of these. PARTS: some of the words "first live forms wide mallocs answers" [all].
mark() { read -r up _ < /proc/uptime; echo "== after $up s: $*"; }
has() { case " ${PARTS:-first live forms wide mallocs answers} " in *" $1 "*) ;; *) return 1 ;; esac; }
failed=0
# tested NAME ARGUMENT...: run tests, and go on if some fail.
tested() {
    mark "$1"
    report=/out/$1.xml
    shift
    python3 -m pytest -q -p no:cacheprovider --timeout=1800 --durations=10 --junitxml="$report" "$@" || failed=1
}
echo core > /proc/sys/kernel/core_pattern
uname -a
mark "pages of $(getconf PAGESIZE) bytes, $(python3 --version), $(gdb --version | head -n 1)"
# pip of Debian 11 does not know the first option.
pip install --break-system-packages --help >/dev/null 2>&1 && alone=--break-system-packages || alone=
pip install --no-index --no-deps $alone --root-user-action=ignore -q /srv/*.whl || exit 1
ln -s /usr/local/bin/gdbheap /usr/local/bin/gdbheap-python /usr/bin/
mark "the wheel is installed"
GDBHEAP_RELEASE=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export GDBHEAP_RELEASE
if [ -n "${ONLY:-}" ]; then
    # shellcheck disable=SC2086
    tested only $ONLY
    exit $failed
fi
if has first; then
    python3 -c 'import time; held = [str(i) for i in range(60_000)]; time.sleep(10_000)' & target=$!
    sleep 3
    gdbheap $target || exit 1
    mark "the first page"
    kill $target
fi
# Stops, with restarted system calls and signals; 200 stops at random moments of 8 threads in malloc; 300 kills of
# gdbheap; copies, and kills during copies; calls of malloc_trim() and malloc_stats() that are undone.
! has live || tested live tests/test_stop.py tests/test_any_moment.py tests/test_registers.py tests/test_clone.py \
    tests/test_undone_calls.py tests/test_unpatched_machine.py
# Processes, cores by gdb and cores by the kernel: figures of malloc and of pymalloc, every pointer, populations of
# objects, books to the page, the prediction of trim.
! has forms || tested forms tests/test_oracle_pools.py::test_pools_equal_debugmallocstats tests/test_oracle_arenas.py \
    tests/test_oracle_ledger.py tests/test_oracle_trim.py::test_cores tests/test_oracle_trim.py::test_python \
    tests/test_oracle_trim.py::test_ledger_says_the_same tests/test_oracle_pyobjects.py::test_own_classes \
    tests/test_oracle_pyobjects.py::test_exactly_the_new_objects tests/test_oracle_diff.py::test_types
# Some cases of further tests, others in each run.
! has wide || tested wide --in-turn tests/test_oracle_trim.py tests/test_oracle_paths.py tests/test_oracle_retained.py \
    tests/test_oracle_unreachable.py tests/test_oracle_chunks.py tests/test_oracle_holes.py tests/test_oracle_pins.py \
    tests/test_oracle_stacks.py tests/test_oracle_frames.py tests/test_gdb_commands.py tests/test_gdb_stats.py \
    tests/test_gdb_trim.py tests/test_gdb_library.py tests/test_snapshots.py tests/test_export.py
# Debian's jemalloc, tcmalloc, mimalloc and musl.
! has mallocs || tested mallocs --in-turn tests/test_jemalloc_library.py tests/test_tcmalloc_library.py \
    tests/test_mimalloc_library.py tests/test_mallocng.py tests/test_other_allocators.py tests/test_instants.py
if has answers; then
    mark answers
    python3 tests/arm64_answers.py /out/answers || failed=1
fi
mark "the end"
exit $failed
