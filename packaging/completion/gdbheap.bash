# Completion of gdbheap for bash; written by scripts/shell_pages.py.
_gdbheap()
{
    local word="${COMP_WORDS[COMP_CWORD]}" noun="${COMP_WORDS[1]}" option="" several="" words
    [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]] && option="${COMP_WORDS[COMP_CWORD-2]}"
    [[ $word == "=" ]] && word="" && option="${COMP_WORDS[COMP_CWORD-1]}"
    if [[ $COMP_CWORD == 1 ]]; then
        words="heap arenas stats holes pins sizes chunks pools pyobjects contexts trim map at refs why retained unreachable owners threads tasks duplicates snapshot diff report growth catch record plot top ps processes watch trace replay stacks export sql shell doctor check check-advice info install --help --version"
    else
        case "$noun" in
        heap) words="--detail --quick --budget= --since= --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        arenas) words="--detail --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        stats) words="--seccomp --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose --process= --svg= --growth= --mode=" ;;
        holes) words="--min= --fit= --path --calls= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        pins) words="--min= --allocator= --path --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        sizes) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        chunks) words="--state= --min= --max= --arena= --type= --by= --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        pools) words="--detail --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        pyobjects) words="--type= --list --by= --group= --buffers --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        contexts) words="--mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        trim) words="--yes --dry-run --pad= --seccomp --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        map) words="--svg= --cell= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        at) words="--path --calls= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        refs) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        why) words="--calls= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        retained) words="--by= --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        unreachable) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        owners) words="--min= --by= --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        threads) words="--values --c-frames --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        tasks) words="--kind= --list --retained --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        duplicates) words="--type= --holders --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        snapshot) words="--with-contents --owners --blocks --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        diff) words="--limit= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        report) words="--children --name= --cgroup= --user= -o= --with-contents --owners --process= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        growth) words="--duration= --count= --no-stacks --perf --seccomp --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        catch) words="--size= --min= --max= --block= --grows --count= --duration= --seccomp --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        record) words="--children --name= --cgroup= --user= -o= --csv-safe --every= --duration= --stop --snapshot-every= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        plot) words="-o= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        top) words="--children --name= --cgroup= --user= --every= --count= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        ps) words="--filter= --heap --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        processes) words="--children --name= --cgroup= --user= --quick --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        watch) words="--children --name= --cgroup= --user= --rss= --grows= --at-oom --on-memory-error --seccomp --mark= --within= --output= --no-snapshot --blocks --heap --core --run= --run-limit= --count= --again= --duration= --prometheus= --prometheus-host= --look-every= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        trace) words="-o= --order= --pymalloc --attach= --stacks --finish --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        replay) words="--process= --allocator= --arena-max= --mmap-threshold= --trim-threshold= --tunables= --fill --mappings --stop-at= --frames= --every= --what-if --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        stacks) words="--pprof= --at= --diff= --process= --mode= --format= -o= --folded= --svg= --speedscope= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        export) words="--children --name= --cgroup= --user= -o= --format= --csv-safe --tables= --edges --with-contents --partition= --mode= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        sql) words="--csv --csv-safe --edges --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        shell) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        doctor) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        check) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        check-advice) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        info) words="--top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" ;;
        *) words="--detail --quick --budget= --since= --mode= --format= -o= --folded= --svg= --speedscope= --pprof= --top= --sort= --json --bytes --no-text --max-stop= --exe= --sysroot= --coredump= --clone --verbose" noun=heap ;;
        esac
    fi
    if [[ -n $option ]]; then
        words=""
        case "$noun $option" in
        "heap --format") words="folded svg speedscope pprof" ;;
        "heap --sort") words="resident virtual swapped name" ;;
        "arenas --sort") words="system in_use free fast tcache top used_chunks free_chunks index" ;;
        "stats --sort") words="order arena what theirs ours calls bytes live live_bytes size" ;;
        "holes --sort") words="size resident address arena allocator" ;;
        "pins --allocator") words="glibc mallocng oldmalloc jemalloc tcmalloc libmimalloc pymalloc mimalloc" ;;
        "pins --sort") words="kept would_free size blocks address allocator" ;;
        "sizes --sort") words="bytes used_bytes free_bytes used free size" ;;
        "chunks --state") words="used mmapped free fast tcache top fencepost" several=yes ;;
        "chunks --by") words="type stack" ;;
        "chunks --format") words="folded svg speedscope pprof" ;;
        "chunks --sort") words="size address arena count" ;;
        "pools --sort") words="pools size used free" ;;
        "pyobjects --by") words="type size length module value line fill" ;;
        "pyobjects --sort") words="together bytes buffers count type address role" ;;
        "contexts --format") words="folded svg speedscope pprof" ;;
        "contexts --sort") words="total free used tree" ;;
        "trim --sort") words="predicted whole actual arena" ;;
        "map --sort") words="size resident address" ;;
        "retained --by") words="object type module global thread" ;;
        "retained --format") words="folded svg speedscope pprof" ;;
        "unreachable --sort") words="bytes count size" ;;
        "owners --by") words="holder block array type global thread" ;;
        "owners --format") words="folded svg speedscope pprof" ;;
        "tasks --kind") words="all task coroutine generator async_generator greenlet" ;;
        "tasks --sort") words="count bytes retained" ;;
        "diff --sort") words="together bytes count type" ;;
        "growth --format") words="folded svg speedscope pprof" ;;
        "growth --sort") words="bytes calls" ;;
        "catch --sort") words="time size" ;;
        "top --sort") words="rss growth swap malloc idle program" ;;
        "ps --sort") words="ram private shared swapped count program" ;;
        "processes --sort") words="rss pss uss swap in-use free program" ;;
        "trace --order") words="lock time" ;;
        "stacks --format") words="folded svg speedscope pprof" ;;
        "stacks --sort") words="bytes allocated" ;;
        "export --format") words="parquet csv sqlite heapsnapshot" ;;
        "export --tables") words="snapshots ledger findings mappings arenas threads holes types blocks objects edges" several=yes ;;
        "sql --sort") words="query" ;;
        "info --sort") words="order fact source" ;;
        esac
        [[ -n $several && $word == *,* ]] && words=$(printf "${word%,*},%s " $words)
    elif [[ $word != -* ]]; then
        words+=" $(command ps -eo pid= 2>/dev/null)"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _gdbheap gdbheap
