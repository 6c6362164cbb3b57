"""The meaning of each key of ``--json``.

docs/json.md and the schemas of 'gdbheap schema' are made from these meanings and from the types of the records' fields.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CHANGES", "KEYS", "OTHERWISE", "VALUES", "Key", "key_of"]


class Key(NamedTuple):
    """The meaning of a key in JSON.

    ``unit``: the unit of its numbers, "" if it has none.
    ``text``: what the key means.
    ``null``: when the key is null, "" if it never is.
    """

    unit: str
    text: str
    null: str = ""


def key_of(record: str, key: str) -> Key:
    """Return the meaning of a record's key. Raises KeyError if the key has no meaning here."""
    name = f"{record}.{key}"
    if name in OTHERWISE:
        return OTHERWISE[name]
    found = KEYS[key]
    text = VALUES.get(name, found.text)
    if record in CHANGES and key in CHANGED:
        null = "unknown in one of the two snapshots" if found.null else ""
        return Key(found.unit, f"the value in the last snapshot minus that in the first: {text}", null)
    return found._replace(text=text)


KEYS: dict[str, Key] = {
    "abandoned": Key("number", "mimalloc pages of threads that have ended"),
    "abort": Key("", "why glibc ended the process with abort()", "glibc did not end the process"),
    "about": Key("", "the subject of the page: target, snapshot, difference, calls, processes or series"),
    "absent": Key(
        "bytes",
        "the bytes of large blocks that are not resident, because they were never written to or are swapped out",
    ),
    "acted": Key("number", "how often the watch acted; 0 in every event but the last"),
    "active": Key("bytes", "the bytes of the extents or pages that contain blocks", "the allocator has no such figure"),
    "actual": Key("bytes", "the bytes by which malloc_trim() reduced resident memory", "malloc_trim() was not called"),
    "address": Key(
        "address",
        "the first address of the described memory; for a block, the pointer that malloc returned",
        "no address applies, or it is unknown",
    ),
    "addresses": Key("address", "the addresses of the first few of these blocks"),
    "advice": Key("", "what the user can do about the finding or the obstacle", "there is nothing to do"),
    "after": Key("", "the block after the hole", "no block follows the hole"),
    "agrees": Key("", "whether each of gdbheap's figures equals the process's own figure"),
    "alignment": Key("bytes", "the requested alignment; 0 if none was requested"),
    "all": Key("number", "all calls of malloc, calloc, realloc, memalign and free"),
    "all_used": Key(
        "", "all used blocks: the sum of the keys total, free_lists, interpreter, roots, unclassified and other_chunks"
    ),
    "allocated": Key(
        "number",
        "the number of allocated blocks: released, counted in 'not_released', or in use at the end",
    ),
    "allocated_at": Key("", "the line of Python code that allocated the block", "tracemalloc does not trace the block"),
    "allocated_blocks": Key(
        "number",
        "the number of blocks that the stack allocated up to that moment, including blocks that were released again",
    ),
    "allocated_bytes": Key(
        "bytes", "the bytes that the stack allocated up to that moment, including bytes that were released again"
    ),
    "allocator": Key(
        "",
        "the allocator, such as glibc, pymalloc or jemalloc; for a target, the allocator that serves malloc, "
        "with its release",
        "unknown",
    ),
    "allocator_frames": Key("number", "how many of the innermost frames belong to the allocator"),
    "allocators": Key("", "the ids of the ledger's lines for allocators whose bytes are summed up here"),
    "alone": Key(
        "number",
        "the number of groups of pages, or arenas, that could be returned to the kernel if the blocks of this "
        "kind or size were freed",
    ),
    "alone_blocks": Key("number", "the number of blocks in arenas in which only this size class has used blocks"),
    "also": Key("", "other holders of the memory that this holder reaches but does not retain"),
    "anon": Key("bytes", "the control group's anonymous memory", "the kernel does not report it"),
    "anonymous": Key("bytes", "the anonymous part of resident memory", "the kernel does not report it"),
    "arena": Key("number", "the arena's index, as in 'heap arenas'", "no arena contains the memory"),
    "arena_changes": Key("", "arenas that are new, gone or changed"),
    "arena_growths": Key("", "calls that made an arena larger", "--growth was not given"),
    "arena_name": Key("", "the arena's name, or 'total' for the sum over all arenas"),
    "arena_size": Key("bytes", "the size in bytes of each arena", "pymalloc is not in use"),
    "arenas": Key("number", "the number of arenas"),
    "around": Key("", "descriptions of the blocks before and after the hole"),
    "array": Key("", "the DataFrame, table or array", "the memory belongs to no DataFrame, table or array"),
    "asked": Key("bytes", "the number of bytes that the program requested", "unknown"),
    "at_end": Key("", "the holes at the end of the replay", "the holes were not searched for"),
    "at_least": Key("", "whether the true figure may be larger, because not all references could be read"),
    "at_most": Key(
        "bytes",
        "the most bytes that the removal could free, including blocks that other holders may hold too",
        "the same as 'retained'",
    ),
    "at_peak": Key(
        "", "the holes after the call with which the most bytes were in use", "the holes were not searched for"
    ),
    "attribute": Key("", "the attribute that the option --group names"),
    "awaits": Key(
        "address",
        "the address of the object that the last coroutine of the chain waits for",
        "the coroutine waits for nothing",
    ),
    "base": Key("", "the type of the object that provides the array's memory", "the array has its own memory"),
    "before": Key("", "the block before the hole", "no block precedes the hole"),
    "began": Key("nanoseconds", "the time when the recording began, in nanoseconds since 1970"),
    "beside": Key(
        "number",
        "the pid of the process with which the pages of this process were compared",
        "the pages were not compared",
    ),
    "beside_python": Key("", "whether the program also has Python objects, which are not in the rows"),
    "best": Key(
        "number",
        "the index, counted from 0, of the run that used the least memory, if it used significantly less than the "
        "first run",
        "no other run used significantly less memory than the first run",
    ),
    "best_piece": Key("", "the free chunk that malloc would use", "no free chunk is large enough"),
    "bins": Key("", "the free chunks of the arena, by kind of list"),
    "block": Key(
        "", "the block at the address, or the block that made malloc abort", "there is no block, or it is unknown"
    ),
    "block_changes": Key("", "blocks that are new or gone", "a snapshot has no list of blocks"),
    "block_count": Key("number", "the number of blocks that the file lists", "no list of blocks was requested"),
    "block_kind": Key("", "what the block is: its kind, without its address", "the block is free"),
    "blocks": Key("number", "the number of blocks", "the rows are arrays, not blocks"),
    "boot_id": Key("", "the kernel's id for the current boot of the machine", "unknown"),
    "both": Key(
        "bytes",
        "the bytes of pages that differ in reference counts and in data of the garbage collector, but in no other data",
    ),
    "bound": Key("bytes", "the limit in bytes that was reached"),
    "brk": Key("", "the calls of brk() that made memory grow"),
    "buffers": Key("bytes", "the bytes of other blocks that the objects own"),
    "by": Key("", "the environment variable that gave the setting its value", "no variable set it, or this is unknown"),
    "by_arena": Key("", "how malloc would serve the request in each arena"),
    "by_calls": Key("", "the number of blocks, by lifetime in calls"),
    "by_kind": Key("", "the blocks whose kind was found, summed up by kind over all groups"),
    "by_name": Key("", "the memory contexts, summed up by name"),
    "by_stacks": Key("bytes", "the bytes by which thread stacks grew"),
    "bytes": Key("bytes", "the total size of the described blocks, objects or pages", "unknown"),
    "cache": Key("bytes", "the page cache without shared memory", "the kernel does not report it"),
    "cached": Key("bytes", "the bytes of blocks in thread caches", "the allocator has no such count"),
    "cached_pieces": Key("", "chunks of exactly the requested size in thread caches"),
    "call": Key("number", "the number of the call: 1 for the first call, 0 for the time before it"),
    "calloc": Key("number", "the number of calls of calloc"),
    "calls": Key("number", "the number of calls"),
    "came": Key("bytes", "the bytes that were mapped by calls that gdbheap did not observe"),
    "capacity": Key(
        "bytes",
        "the number of bytes that the containers' blocks can hold",
        "the blocks belong to no containers, or this is unknown",
    ),
    "cause": Key("", "why the watch acted", "the watch did not act"),
    "cell": Key("bytes", "the number of bytes that one cell of the picture stands for"),
    "cells": Key("", "the cells of the drawn area, by address"),
    "certain": Key(
        "",
        "whether every reference on the path from the root is a known pointer; if not, one may be a number that looks "
        "like a pointer",
    ),
    "cgroup": Key("", 'the path of the control group; "" for the whole machine', "the event is about one process"),
    "chain": Key("", "the path from a root to the object or block, as text", "the path was not searched for"),
    "choice": Key(
        "", "the value of --arena that selects this arena in 'heap chunks'", "--arena cannot select this arena"
    ),
    "chunk": Key("bytes", "the size of the chunk that the request needs, including its header"),
    "chunks": Key("number", "the number of chunks"),
    "classes": Key("", "a row for each block size"),
    "closings": Key("", "the references that close the cycles, at most 20 kinds"),
    "collectable_bytes": Key("bytes", "the number of bytes that gc.collect() frees"),
    "collectable_objects": Key("number", "the number of objects that gc.collect() frees"),
    "collector": Key("bytes", "the bytes of pages that differ only in data of the garbage collector"),
    "columns": Key("", "the columns of the table; for a query, the names of the columns"),
    "command": Key("", "the name of the command"),
    "commands": Key("", "command lines to copy"),
    "compared": Key("", "the compared snapshots, the first one first"),
    "confirmed": Key("", "what confirms the fact", "nothing confirms it"),
    "control_group": Key(
        "", "the memory that the control group uses", "the target is a core, or no control group counts its memory"
    ),
    "container": Key("", "the id of the container in which the process runs", "the process runs in no container"),
    "content": Key("", "what most of the blocks look like", "the blocks differ, or they have a type"),
    "copied": Key("bytes", "the number of bytes that realloc copied"),
    "copies": Key("number", "the number of objects whose value another object has too"),
    "core": Key("", "the path of the core", "the target is a process"),
    "coroutine": Key("", "the function of the outermost coroutine in the chain of awaits"),
    "cost": Key("", "how long, and how often, gdbheap stopped threads of the process in order to follow it"),
    "count": Key("number", "the number of all rows that match, including rows that are left out", "unknown"),
    "counts": Key(
        "number", "the number of items in the holder, for each snapshot", "the holder has no length in that snapshot"
    ),
    "counts_only": Key("bytes", "the bytes of pages that differ only in reference counts"),
    "cumulated": Key("", "the bytes of all requests together"),
    "current": Key("bytes", "the bytes that the control group uses now"),
    "curve": Key("", "the blocks in use, over calls and over time; each curve has at most 2,048 points"),
    "cut": Key("", "the paths of the recordings whose last line was incomplete"),
    "cycles": Key(
        "", "objects that are kept alive only by references from one another, and everything that they keep alive"
    ),
    "damage": Key("", "contradictions in the target's data that no allocator would leave"),
    "data": Key(
        "bytes",
        "the bytes of pages that differ in more than reference counts and the collector's data, because the "
        "program wrote to them",
    ),
    "data_address": Key("address", "the address of the first value", "the array has no values"),
    "deep": Key(
        "bytes",
        "the bytes of the column, including the objects to which its values point, like memory_usage(deep=True) "
        "of pandas",
        "unknown",
    ),
    "described": Key("number", "the number of blocks that gdbheap examined to find their kind"),
    "detail": Key(
        "",
        "why the check failed: the kernel's error message, or the state in which gdbheap found the process or file",
    ),
    "device": Key("", "the device of a tensor", "the array is not a tensor"),
    "dirty": Key(
        "bytes",
        "the bytes of free extents or pages that were not returned to the kernel",
        "the allocator has no such figure",
    ),
    "disk_full": Key("", "whether calls are missing because the disk was full"),
    "dominator_count": Key("number", "the number of all dominators, including dominators that the list leaves out"),
    "dominators": Key(
        "",
        "the block's dominators: objects each of which keeps the block alive, so that removing any one of them "
        "frees it; the outermost first, the block itself last",
    ),
    "doubtful": Key("", "blocks to which only possibly stale pointers point, and which may be lost"),
    "doubtful_samples": Key(
        "number", "the number of samples that may be wrong because the process ran while they were taken"
    ),
    "dtype": Key("", "the type of the values", "the values have several types"),
    "edge": Key("", "the field, attribute, key or index of the holder that refers to the next object, as text"),
    "elsewhere": Key("", "the part of 'all_used' that lies in memory of allocators whose blocks gdbheap cannot list"),
    "emptied": Key(
        "", "what would happen to the groups of pages if the pinning blocks were freed, as the end of a sentence"
    ),
    "emptiest": Key("", "the arenas with the fewest used bytes"),
    "empty": Key("number", "the number of containers that have no memory for items"),
    "end": Key("address", "the address after the last byte of the range"),
    "environment": Key("", "the environment variables that the advice names, with their values"),
    "error": Key("", "why there is no answer"),
    "inaccuracy": Key(
        "share", "the largest possible error of the reported lifetimes, as a share: a lifetime is never too short"
    ),
    "errors": Key("", "one line for each action that failed, with the reason"),
    "event": Key(
        "",
        "the kind of event: began, ended, killed, nobody, unreadable, unseen, unrestored, missed, left-out, serving, "
        "acting, acted or end",
    ),
    "events": Key("number", "the kernel's counters of the control group's memory events, by name"),
    "every": Key("number", "the number of replayed calls from one picture of the film to the next"),
    "everybody": Key("", "whether other machines can read the metrics, too"),
    "example": Key("", "one of the values or descriptions that the row sums up", "there is none"),
    "exe": Key("", "the path of the program", "unknown"),
    "exit_status": Key(
        "number",
        "the exit status of the command that gdbheap started, or of the watched process that ended (negative for the "
        "signal that ended it); for a session, the highest exit status of its commands",
        "no command was started, it still runs, or its status is unknown",
    ),
    "expected": Key("", "the data that gdbheap expected at the address"),
    "expression": Key("", "the path as a Python expression", "no Python expression reaches it"),
    "fact": Key("", "what the row is about, such as a version, an address or a layout"),
    "failed": Key("number", "the number of failures: of allocations, or of actions of a watch"),
    "failure": Key("", "why there are no figures", "there are figures"),
    "failures": Key("", "one line for each problem of the recording"),
    "fast": Key("bytes", "the bytes of chunks in fast bins", "the allocator has no fast bins"),
    "field": Key("", "the field of malloc's structure mp_ that contains the setting"),
    "figure": Key("", "the name of the figure: rss, system, in_use, pool_bytes or pool_used"),
    "figures": Key("number", "the numbers on which the finding is based, by name"),
    "file": Key(
        "",
        "the path of the file; for a frame, the source file (the last 300 characters of a longer path in debug "
        "information); for a frame of C code without debug information, the program or library that contains the code "
        '("" if none)',
        "unknown",
    ),
    "file_clean": Key(
        "bytes", "the part of resident memory in unchanged pages of files", "the kernel does not report it"
    ),
    "file_dirty": Key(
        "bytes", "the part of resident memory in changed pages of files", "the kernel does not report it"
    ),
    "file_pages": Key(
        "bytes",
        "the bytes of pages of the process's files that became resident because gdbheap read the process's code",
        "unknown, or gdbheap started the program",
    ),
    "files": Key("", "the paths of the files that were written, by kind"),
    "fill": Key("", "the arenas, grouped by how full they are"),
    "filled": Key("", "whether the replay touched one byte on each page of a request"),
    "film": Key("", "pictures of the heap at regular intervals", "--frames was not given"),
    "final_rss": Key("bytes", "the allocator's resident bytes at the end of the replay", "the run failed"),
    "finding": Key("", "the finding with the most bytes", "there is no finding"),
    "findings": Key("", "memory that could be released or avoided, the largest amount first"),
    "first": Key("bytes", "the value of the figure in the first sample"),
    "fit": Key("", "whether a request fits into malloc's free memory", "--fit was not given"),
    "fits": Key("", "whether the request fits into free memory of an arena or of a thread's cache"),
    "fixed": Key("", "whether addresses were the same in each run"),
    "folder": Key("", "the path of the folder, or of the control group"),
    "fork": Key("number", "the number of calls of fork"),
    "format": Key("", "the format of the files: parquet, csv or sqlite"),
    "found": Key("", "the data that gdbheap found at the address"),
    "frame": Key(
        "", "the innermost frame of Python code; if there is none, the innermost frame of all", "the stack is empty"
    ),
    "frames": Key("", "the stack, the outermost frame first", "the log has no stack"),
    "free": Key("bytes", "the bytes of free blocks, including their headers", "memory cannot be read"),
    "free_caches": Key("", "the caches in which allocators without arenas keep free blocks"),
    "free_count": Key("number", "the number of free blocks", "the allocator has no such count"),
    "free_lists": Key("", "objects that are not in use and that the interpreter keeps for reuse"),
    "free_pools": Key("number", 'the number of pools without blocks ("unused pools" of sys._debugmallocstats())'),
    "free_resident": Key("bytes", "the resident part of 'free'", "residency is unknown"),
    "free_spans": Key("bytes", "the bytes in segments that are not part of any page"),
    "freed": Key(
        "bytes", "the resident bytes that packing the blocks would free", "packing does not apply to this allocator"
    ),
    "freezing": Key(
        "bytes",
        "the part of 'collector' that would still be shared if the parent had called gc.freeze() before the fork",
    ),
    "from_calls": Key("number", "the lower limit of the number of calls, inclusive"),
    "from": Key("bytes", "the lower limit of the size, inclusive"),
    "full": Key("%", "the percentage of the last 10, 60 and 300 seconds in which all tasks waited for memory"),
    "full_seconds": Key("seconds", "the total time in which all tasks waited for memory"),
    "function": Key("", "the name of the function"),
    "given_back": Key(
        "bytes",
        "the bytes of address space whose memory was returned to the kernel",
        "the allocator keeps no such address space",
    ),
    "glibc": Key("", "the release of glibc", "unknown, or the program does not use glibc"),
    "gone": Key("number", "the number of blocks that only the first snapshot has"),
    "group": Key("", "the kind of leak: cycles, lost_references, lost_blocks or doubtful (maybe no leak)"),
    "groups": Key("number", "the number of groups of blocks (slabs, pages or mappings)", "unknown"),
    "grown": Key("bytes", "the bytes that malloc got from the kernel", "--grows was not given"),
    "grows_by": Key("bytes", "the bytes by which the heap would grow", "the heap would not grow"),
    "growth": Key("bytes", "the bytes by which RSS has grown since the first reading", "unknown"),
    "has_looked": Key("", "whether gdbheap read the arena's free chunks before the call"),
    "has_released": Key("", "whether malloc_trim() reported that it released memory", "malloc_trim() was not called"),
    "head_count": Key(
        "number", "the number of all lost blocks to which no other lost block points; 'heads' lists at most 1,000"
    ),
    "heads": Key(
        "",
        "at most 1,000 lost blocks to which no other lost block points; the list has the blocks that retain the most",
    ),
    "heap": Key(
        "", "the bytes of the heap: in use, free and reclaimable", "the heap was not requested, or could not be read"
    ),
    "heaps": Key("", "the heaps of an arena, or mimalloc's heaps by purpose"),
    "heeded": Key("", "the ids of findings whose advised settings were set when the program started"),
    "held": Key("seconds", "the time for which the whole process was stopped", "the process was not stopped"),
    "held_by": Key("", "the types whose objects refer most often to the copies; empty unless requested"),
    "high": Key(
        "bytes", "the memory size above which the kernel slows the control group down", "there is no such limit"
    ),
    "holder": Key("", "the holder of the block, or of most of the blocks", "unknown"),
    "holders": Key("", "the holders of the most memory, the largest first"),
    "hole_bytes": Key("bytes", "the bytes of all holes together"),
    "hole_count": Key("number", "the number of holes"),
    "holes": Key("", "holes that are new or gone"),
    "host": Key("", "the name of the machine", "unknown"),
    "how": Key("", "how the setting got its value: set, default or risen (free() raised it)"),
    "huge": Key("bytes", "the resident bytes in huge pages", "the kernel does not report it (before Linux 6.7)"),
    "huge_pages": Key("bytes", "the resident bytes in huge pages", "the kernel does not report it"),
    "id": Key("", "the identifier, which stays the same in all releases"),
    "ident": Key("", "the memory context's own description of its purpose", "the context has no such text"),
    "imported": Key(
        "",
        "one row for the interpreter, its library and small packages together",
        "the page does not list them separately",
    ),
    "in_calls": Key("", "the lifetimes, counted in calls of all threads"),
    "in_circle": Key("", "whether the block belongs to a cycle to which nothing outside the cycle points"),
    "in_force": Key(
        "number", "the value that malloc uses; for hugetlb, 1 means transparent huge pages and 2 means hugetlbfs"
    ),
    "in_seconds": Key("", "the lifetimes in seconds"),
    "in_use": Key("bytes", "the bytes of blocks in use", "unknown"),
    "inactive_file": Key(
        "bytes", "the part of the page cache that the kernel reclaims first", "the kernel does not report it"
    ),
    "index": Key("number", "the arena's index", "the row is a whole allocator without arenas"),
    "inherited": Key("number", "the number of calls that ancestors of the process made before the fork"),
    "interpreter": Key("", "the interpreter's own tables and states"),
    "interpreters": Key("", "the interpreters with their own pools, the main one first; empty without pymalloc"),
    "is_absent": Key("", "whether memory is missing at the address; if not, it has wrong contents"),
    "is_blind": Key("", "whether there is no finding and the largest part of memory could not be analysed"),
    "is_certain": Key("", "whether it is certain that the memory belongs to the allocator or the runtime"),
    "is_collectable": Key("", "whether gc.collect() frees these cycles"),
    "is_cut": Key("", "whether gdbheap lost track of the mappings, because unobserved calls unmapped too many ranges"),
    "is_doubtful": Key("", "whether the program may need this memory, so that the finding may be a false alarm"),
    "is_most": Key("", "whether the holder retains most of the memory that it reaches, or whether this is unknown"),
    "is_new": Key("", "whether this call created the arena"),
    "is_ours": Key("", "whether the process of 'gdbheap watch' itself belongs to this control group"),
    "is_python": Key("", "whether the program runs Python"),
    "is_reached": Key("", "whether only pointers, and no known field, show that the objects own the blocks"),
    "is_whole": Key("", "whether the log is complete"),
    "items": Key("number", "the number of items in the containers"),
    "kept": Key("bytes", "the free resident bytes that are not counted in 'reclaimable'"),
    "kept_by": Key(
        "",
        "views that alone keep the memory of the array, although the views show little of it",
        "no small views keep the memory",
    ),
    "kernel": Key("bytes", "the kernel's own memory for the control group", "the kernel does not report it"),
    "key": Key("number", "the common size, length or module of the objects"),
    "kind": Key("", "the kind of the described thing, such as object, frame or holder", "unknown"),
    "kinds": Key("number", "the number of objects of each kind"),
    "knows_environment": Key("", "whether gdbheap knows the environment with which the program started"),
    "lacking": Key("bytes", "the bytes of the program's memory that are missing in a truncated core"),
    "largest": Key(
        "bytes",
        "the size of the arena's largest free chunk before the call",
        "there was no free chunk, or it was not searched for",
    ),
    "largest_block": Key("address", "the address of the holder's largest block", "unknown"),
    "largest_hole": Key(
        "bytes",
        "the size of the largest hole, also if it is smaller than minimum",
        "there is no hole, or it is unknown",
    ),
    "last": Key("bytes", "the value of the figure in the last sample"),
    "lazily_freed": Key(
        "bytes",
        "the part of resident memory that the program released with madvise(MADV_FREE)",
        "the kernel does not report it",
    ),
    "least": Key("bytes", "the smallest size of a listed block", "blocks are not listed one by one"),
    "least_peak_rss": Key("bytes", "the smallest 'peak_rss' of all rounds", "the run failed"),
    "least_request": Key(
        "bytes",
        "the smallest request that gets a block of this size from malloc(); for tcmalloc, it may be too small by a few "
        "bytes",
        "malloc() does not hand out such blocks, or the row is about objects or blocks that are not lost",
    ),
    "least_saved": Key(
        "bytes",
        "the bytes that the advice saves as long as no process uses the objects",
        "the advice is of another kind",
    ),
    "ledger": Key("", "all address space, by owner; the lines below a parent line add up to it"),
    "left_out": Key("", "one line for each missing part of the answer, with the reason"),
    "level": Key("number", "the number of steps from TopMemoryContext down to this context"),
    "library": Key("", "the library whose data points to the block, or 'threads'", "no library points to the block"),
    "lifetimes": Key("", "the time from allocation to release, for the released blocks"),
    "likely_bytes": Key(
        "bytes",
        "an estimate of the bytes of all blocks, from the sampled blocks",
        "jemalloc before 5.3 does not report it",
    ),
    "likely_count": Key(
        "number",
        "an estimate of the number of all blocks, from the sampled blocks",
        "jemalloc before 5.3 does not report it",
    ),
    "limit": Key("bytes", "the memory limit", "there is no limit"),
    "limits": Key("", "the watched limits on the memory of the process: of its control groups and of the machine"),
    "line": Key("number", "the line number in the file", "the frame is C code, has ended, or its line is unknown"),
    "line_count": Key("number", "the number of ledger lines in the file"),
    "list": Key("", "the free list that contains the block", "no list contains it"),
    "live": Key("", "the blocks in use at the end"),
    "live_blocks": Key("number", "the number of blocks in use at the end"),
    "live_bytes": Key("bytes", "the bytes requested for the blocks in use at the end"),
    "locals": Key("", "the local variables of the frame"),
    "locked": Key("bytes", "the part of resident memory that is locked with mlock()", "the kernel does not report it"),
    "longest": Key("number", "the longest lifetime, in calls or in seconds", "no block was released"),
    "look": Key("", "the structure in the block, or what the bytes of the block look like", "unknown"),
    "look_count": Key("number", "the number of exported snapshots, processes and cores"),
    "looked": Key("number", "the number of processes whose heaps were read"),
    "looks": Key(
        "bytes",
        "the row's bytes in each snapshot, oldest first; for a line of the ledger its resident bytes",
        "residency is unknown",
    ),
    "lost": Key("number", "the number of calls that are missing in the log", "no call can be missing"),
    "lost_blocks": Key("", "blocks to which nothing points except other lost blocks"),
    "lost_references": Key(
        "",
        "objects whose reference count is larger than the number of references that were found, and everything "
        "that they keep alive",
    ),
    "lower": Key("bytes", "the bytes of all requests; of each realloc, only the added bytes count"),
    "made": Key(
        "", "the recorded call that allocated the block", "no log was given, or the log has no stack for the block"
    ),
    "made_larger": Key("number", "the number of blocks that realloc enlarged"),
    "malloc": Key("number", "the number of calls of malloc"),
    "malloc_trim": Key("number", "the number of calls of malloc_trim"),
    "mallopt": Key("number", "the number of calls of mallopt"),
    "mapped": Key("bytes", "the bytes of memory outside of blocks that the objects mapped"),
    "mapped_count": Key(
        "number", "the number of used chunks that have their own mapping", "malloc is not the C library's"
    ),
    "mapping": Key("", "the mapping that contains the address"),
    "mappings": Key("number", "the number of mappings over which the block extends"),
    "mark": Key("bytes", "the bytes of the limited memory at which the watch acts"),
    "max": Key("bytes", "the control group's memory limit", "there is no limit"),
    "max_of": Key("", "the path of the control group that sets the limit", "there is no limit"),
    "maxsize": Key("number", "the maxsize of an lru_cache; -1 for unlimited", "the holder is not an lru_cache"),
    "mean": Key(
        "bytes",
        "the average number of requested bytes between two recorded stacks; 1 means that each call has a stack",
    ),
    "meanwhile": Key("", "how RSS changed while gdbheap searched for the holders", "unknown"),
    "median": Key("number", "the median lifetime: half of the blocks lived no longer", "no block was released"),
    "memalign": Key("number", "the number of calls of memalign and of similar functions that return aligned blocks"),
    "members": Key("", "the blocks of the group, at most 1,000"),
    "memory": Key("", "the kind of memory that the setting affects"),
    "message": Key("", "the message that glibc printed before it ended the process"),
    "mimalloc": Key("", "the figures of CPython's mimalloc", "the interpreter uses pymalloc"),
    "minimum": Key("bytes", "the smallest size of a listed hole, or the fewest bytes that a listed group pins"),
    "missing": Key("", "one line for each section that could not be written"),
    "mmap": Key("", "the calls of mmap() and similar functions that made memory grow"),
    "mmap_threshold": Key("bytes", "the smallest size for which malloc creates a separate mapping"),
    "mmapped_chunks": Key(
        "", "chunks with their own mapping, as malloc counts them", "the program does not use glibc's malloc"
    ),
    "mmapped": Key("", "whether malloc would create a separate mapping for the request"),
    "module": Key(
        "", "the program or library file that contains the allocator", "there is only one allocator of this kind"
    ),
    "more": Key(
        "number", "the number of rows that are left out because of --top or the size of the document", "unknown"
    ),
    "most": Key("bytes", "the largest number of bytes in use at any time since the previous point"),
    "most_blocks": Key("", "the moment when the most blocks were in use"),
    "most_peak_rss": Key("bytes", "the largest 'peak_rss' of all rounds", "the run failed"),
    "most_request": Key(
        "bytes",
        "the largest request that gets a block of this size from malloc()",
        "malloc() does not hand out such blocks, or the row is about objects or blocks that are not lost",
    ),
    "most_saved": Key("bytes", "the estimated number of bytes that the advice saves", "the advice is of another kind"),
    "moved": Key("number", "the number of blocks that realloc moved"),
    "mremap": Key("number", "the number of calls of mremap"),
    "munmap": Key("number", "the number of calls of munmap"),
    "muzzy": Key("bytes", "the bytes of free extents that the kernel may reclaim", "the allocator has no such figure"),
    "name": Key("", "the name of the described thing", "it has no name"),
    "named_variable": Key(
        "",
        "the variable of C or C++ whose name was given; the block is its largest one",
        "no variable was named, or the block retains all of the variable's memory",
    ),
    "names": Key("", "further names of the object; each name keeps the object alive"),
    "nbytes": Key("bytes", "the bytes of a tensor's own items", "the array is not a tensor"),
    "nearest": Key("", "the largest free chunks of the arenas, if no free chunk is large enough"),
    "new": Key("number", "the number of blocks that only the last snapshot has"),
    "new_holders": Key(
        "", "the five holders that alone keep the most bytes of new blocks alive", "references were not followed"
    ),
    "next": Key("", "command lines to run next, or advice as text"),
    "not_charged": Key("bytes", "the part of 'own_anonymous' that this control group certainly does not count"),
    "not_drawn": Key("number", "the number of processes that are not in the picture"),
    "not_examined": Key(
        "bytes", "the bytes in use for which no holder is proven, because not all references could be read"
    ),
    "unknown_findings": Key("", "the ids of findings that were not looked for; an id may end in ``*``"),
    "not_looked": Key(
        "number",
        "the number of blocks in use, if there are too many blocks to follow all references",
        "all references were followed",
    ),
    "not_read": Key("", "objects that are in no group, because their attribute could not be read"),
    "not_released": Key("number", "the number of blocks whose release is missing in the log"),
    "not_there": Key("bytes", "the bytes of pages that the other process does not have"),
    "not_walked": Key("", "memory of which gdbheap cannot list the blocks", "there is almost no memory of this kind"),
    "note": Key("", "why some of the figures are unknown", "all figures are known"),
    "nothing": Key("number", "the number of calls of free(NULL)"),
    "ns_a_call": Key("nanoseconds", "the processor time for each call", "the run failed"),
    "object": Key("", "the Python object in the block", "there is no Python object in the block"),
    "objects": Key("number", "the number of objects"),
    "obstacle": Key("", "what prevents gdbheap from reading memory", "nothing prevents it"),
    "occupied": Key(
        "bytes", "the part of 'capacity' that contains items", "the blocks belong to no containers, or this is unknown"
    ),
    "of": Key("", "the kind of table that contains the column, or the kind of the array itself"),
    "of_python": Key("", "the same figures for Python's own allocator", "no call of that allocator was recorded"),
    "ok": Key("", "whether gdbheap found no damage and could read everything"),
    "oom": Key("", "whether the kernel's OOM killer was killing processes when the process ended"),
    "operations": Key(
        "",
        "all calls by kind: 'brk', 'mmap', 'mremap' and 'commit' make memory grow; 'reserve' maps memory without "
        "access; "
        "'mmap.file' maps files and shared memory; all other kinds return memory or change nothing",
    ),
    "order": Key("", "how the order of the calls was recorded: lock or time"),
    "other_chunks": Key("", "unidentified blocks of glibc's malloc"),
    "other_holders": Key(
        "",
        "the paths of further holders of the row's objects or, if 'at_most' is not null, of the blocks that the "
        "objects share",
    ),
    "other_lines": Key("", "the lines of the ledger that are not drawn"),
    "other_processes": Key(
        "bytes", "the anonymous memory of the other processes in the control group", "the kernel does not report it"
    ),
    "other_settings": Key("", "settings of runtimes and of mallocs other than glibc's"),
    "other_stacks": Key(
        "",
        "the sums of all calls whose stacks were not kept, because there were more than 10,000 stacks or 400,000 "
        "frames, or because reading the stack would have taken too long",
        "all stacks were kept",
    ),
    "ours": Key("bytes", "the figure as gdbheap computes it"),
    "outside": Key("bytes", "the resident bytes that are in use and that no allocator handed out"),
    "outside_address": Key(
        "address",
        "the address of the holder's largest memory range that no allocator handed out",
        "the holder has only blocks",
    ),
    "outside_most": Key("", "the holder that has most of the bytes counted in 'outside'"),
    "outside_rows": Key("", "the holders of the bytes counted in 'outside', the largest first"),
    "over_calls": Key("", "points at regular distances in calls"),
    "over_seconds": Key("", "points at regular distances in seconds"),
    "overhead": Key(
        "bytes",
        "the bytes of fenceposts, of the headers of heaps, and of memory that other code got from sbrk",
        "malloc is not the C library's",
    ),
    "own": Key("bytes", "the bytes of the objects' own blocks, including headers"),
    "own_anonymous": Key(
        "bytes",
        "the process's anonymous memory; each shared page counts only with the process's share",
        "the kernel does not report it",
    ),
    "others": Key(
        "", "one row for all holders that have no row of their own", "these holders have less than 5 % of RSS"
    ),
    "owner": Key("", "what owns the block, such as an object", "nothing is known to own the block"),
    "owner_address": Key(
        "address",
        "the address of the object that owns the block",
        "the block contains the object itself, or has no owner",
    ),
    "owner_count": Key(
        "number",
        "the number of objects that the file lists because they retain the most",
        "no list of objects was requested",
    ),
    "owners": Key("", "objects that retain more or less than before"),
    "p90": Key(
        "number",
        "the lifetime that 90 % of the blocks did not exceed, in calls or in seconds like the other values of "
        "the object",
        "no block was released",
    ),
    "pad": Key("bytes", "the free bytes that malloc_trim() leaves at the top of the heap"),
    "page_cache": Key("bytes", "the page cache, including shared memory", "the kernel does not report it"),
    "page_count": Key("number", "the number of mimalloc pages"),
    "pages": Key("bytes", "the bytes of whole pages in the described memory, resident or not"),
    "parent": Key("", "the id of the line that includes this line's bytes", "no other line includes them"),
    "parent_pid": Key("number", "the pid of the process's parent"),
    "partial": Key("", "whether a part of the answer is missing or may be wrong"),
    "parts": Key("", "the parts of the described memory, the largest first"),
    "path": Key(
        "",
        "the path from a root to the object or block, as a Python expression or as text",
        "no root reaches it, or the path was not searched for",
    ),
    "peak": Key("bytes", "the highest value of the figure in the recording"),
    "peak_bytes": Key("bytes", "the largest number of requested bytes that were in use at one time"),
    "peak_call": Key("number", "the number of the call after which the most bytes were in use"),
    "peak_rss": Key("bytes", "the largest number of resident bytes of the allocator", "the run failed"),
    "peak_time": Key("seconds", "the time of the peak, in seconds since 1970"),
    "percent": Key("%", "the largest percentage of used bytes in an arena of the group"),
    "perms": Key("", "the mapping's permissions, as in /proc/PID/maps"),
    "pictures": Key("number", "the number of pictures in the film of the heap"),
    "pid": Key("number", "the pid of the process", "unknown, or there are several processes"),
    "pids": Key("number", "the pids of the processes"),
    "pins": Key("", "the blocks that have most of the used bytes in the arena"),
    "place": Key("", "the place in the source code, as FILE:LINE"),
    "places": Key("number", "the number of places in machine code at which calls were observed"),
    "pool_arenas": Key("bytes", "the bytes of the arenas of Python's own allocator", "unknown"),
    "pool_size": Key("bytes", "the size in bytes of each pool", "pymalloc is not in use"),
    "pool_used": Key("bytes", "the bytes in use in blocks of Python's own allocator", "unknown"),
    "pools": Key("number", "the number of pools"),
    "possible_bytes": Key("bytes", "the number of bytes that gc.collect() may free"),
    "predicted": Key("bytes", "the resident bytes that malloc_trim(0) would release", "residency is unknown"),
    "preloaded": Key("", "the library that was preloaded", "no library was preloaded: glibc's malloc served the calls"),
    "pressure": Key("", "how long tasks waited for memory", "the kernel does not report it"),
    "private": Key("bytes", "the bytes that no other process shares"),
    "process": Key("number", "the pid that was given to the command", "no pid was given"),
    "processes": Key("number", "the number of processes"),
    "program": Key(
        "",
        "the script of an interpreter; for other programs, the file's name or the title that the process gave itself",
    ),
    "pss": Key(
        "bytes",
        "the process's share of resident memory; a page that several processes map is divided by their number",
        "the kernel does not report it",
    ),
    "python": Key("", "the release of Python", "unknown, or the program does not run Python"),
    "pythons": Key("", "the releases of Python whose frames are in the stacks"),
    "ram": Key("bytes", "the sum of 'private' and 'shared'"),
    "rate": Key("bytes/s", "the mean growth per second from the first snapshot to the last"),
    "reached": Key("bytes", "the part of 'buffers' in blocks that pointers reach and that no known field owns"),
    "reading_status": Key("number", "the exit status of a command that tries to read this process"),
    "realloc": Key("number", "the number of calls of realloc and reallocarray"),
    "reason": Key("", "why the recording ended"),
    "reasons": Key("", "why holes remain: one line for each allocator that has holes"),
    "reclaimable": Key(
        "bytes",
        "the bytes that a call such as malloc_trim(0) would return to the kernel now",
        "unknown, no call returns memory, or the memory is not free",
    ),
    "recounted": Key(
        "bytes", "the bytes of pages on which reference counts changed and then returned to the same values"
    ),
    "refers": Key("", "the largest blocks to which this block points, at most 100"),
    "refers_to": Key("number", "the number of blocks to which this block points"),
    "refused": Key("number", "the number of processes that cannot be read"),
    "regions": Key("number", "the number of memory regions that gdbheap checked block by block"),
    "released": Key("number", "the number of blocks that were released"),
    "repeated": Key("bytes", "the bytes of this row that earlier rows count, too"),
    "repeated_mappings": Key(
        "number", "the number of mappings that the program created itself and that the replay created too"
    ),
    "request": Key("bytes", "the size of the request in bytes"),
    "requested": Key("", "the calls that returned a block, and the bytes that they requested"),
    "reserved": Key("bytes", "the bytes of reserved address space outside of the segments"),
    "resident": Key("bytes", "the number of resident bytes", "unknown"),
    "resident_known": Key("", "whether residency is known; if it is, 'would_free' counts only resident pages"),
    "resized": Key("", "how realloc changed blocks"),
    "rest": Key(
        "bytes",
        "the memory of the control group that is not in 'anon', 'cache', 'shmem' or 'kernel'",
        "the kernel does not report it",
    ),
    "restored": Key("bytes", "the bytes of pages that were written to, but have the same contents as before"),
    "retained": Key(
        "bytes",
        "the bytes that would be freed if the described object, holder, thread or frame were removed",
        "unknown",
    ),
    "return_addresses": Key("address", "the return addresses of the stack, the innermost first"),
    "returnable": Key(
        "bytes",
        "the part of 'free_resident' that malloc_trim(0) would return to the kernel",
        "the program does not use glibc's malloc",
    ),
    "role": Key(
        "",
        "the use of the block: the name of the owner's field, such as 'items'; or else 'object', "
        "'object on a free list', 'reached', 'structure', 'cached' or 'unknown'",
    ),
    "room": Key("number", "the number of items that fit into the memory of the containers"),
    "roots": Key("", "blocks that no object owns, grouped by the library or threads that point to the blocks"),
    "rounds": Key("number", "how many times the calls were replayed"),
    "row_count": Key("number", "the number of rows"),
    "rows": Key("", "the rows of the table, one record for each row"),
    "rss": Key("bytes", "the number of resident bytes", "unknown"),
    "rss_after": Key(
        "bytes",
        "RssAnon after the call of malloc_trim(), or when gdbheap stopped following the process",
        "not called, or unknown",
    ),
    "rss_before": Key(
        "bytes",
        "RssAnon before the call of malloc_trim(), or when gdbheap began to follow the process",
        "not called, or unknown",
    ),
    "run": Key("number", "the exit status of the command that --run started", "no command was started"),
    "running": Key("", "the frames of the thread, the innermost first"),
    "same": Key(
        "",
        "a chain of objects below this object, each of which retains almost the same bytes (within 1 %), the "
        "outermost first",
    ),
    "same_process": Key("", "whether all snapshots are of the same process"),
    "sampled_blocks": Key("number", "the number of blocks in use that have a stack"),
    "samples": Key("number", "the number of samples"),
    "saved": Key("bytes", "the bytes that storing each value only once would save"),
    "saves": Key("bytes", "the bytes that the advice certainly saves"),
    "savings": Key("", "actions before the fork that would save memory"),
    "schema": Key("number", "the version of the JSON schema"),
    "scope": Key("", "whether the figures describe the control group or the whole machine: group or machine"),
    "script": Key("", "the script or module that Python runs", "the program is not a Python program"),
    "seconds": Key(
        "seconds",
        "a duration in seconds: of the whole run, or in a row about one moment, from the beginning to that moment",
        "unknown",
    ),
    "seconds_left": Key(
        "seconds",
        "the time in seconds until RSS reaches the limit, if RSS keeps growing at this rate",
        "there is no limit, or RSS does not grow",
    ),
    "segments": Key("number", "the number of mimalloc segments, each of at least 32 MiB"),
    "serving": Key("", "the allocators that serve malloc, if the C library's own allocator is unused"),
    "settings": Key("", "the settings of glibc's malloc"),
    "shape": Key("number", "the lengths of the array's axes (its dimensions)"),
    "share": Key("share", "the resident bytes as a share of RSS: 1 means all of RSS", "unknown"),
    "shared": Key("bytes", "the bytes that other processes share, or may share", "the kernel does not report it"),
    "sharing": Key("number", "the number of dicts that share their table of keys with other dicts"),
    "shmem": Key("bytes", "the control group's shared memory", "the kernel does not report it"),
    "short_by": Key(
        "bytes",
        "the number of bytes by which the largest free chunk is too small for the request",
        "a free chunk is large enough, or there is no free chunk",
    ),
    "shown": Key("bytes", "the bytes of the memory that are visible through the views"),
    "shrunk": Key("number", "the number of blocks that realloc made smaller"),
    "since": Key("", "the changes since an earlier snapshot", "--since was not given"),
    "since_call": Key("number", "the number of the call whose figures were subtracted", "--diff was not given"),
    "sites": Key("", "one row for each stack (growth) or innermost frame (a recording), with the sums of its calls"),
    "size": Key("bytes", "the size in bytes of a block (with its header), a hole, an object or a file"),
    "sizes": Key("", "a row for each size of block"),
    "slab": Key("bytes", "the part of 'kernel' that is in slab caches", "the kernel does not report it"),
    "slabs": Key("number", "the number of slabs and large blocks of jemalloc"),
    "smaller": Key("number", "the number of your processes that are left out, because only the 100 largest are listed"),
    "snapshots": Key("", "the paths of the snapshots that were taken during the recording"),
    "some": Key("%", "the percentage of the last 10, 60 and 300 seconds in which at least one task waited for memory"),
    "some_seconds": Key("seconds", "the total time in which at least one task waited for memory"),
    "source": Key("", "the source from which gdbheap read the figure or fact"),
    "sources": Key("", "the source file and line of each frame", "no debug information names the source lines"),
    "spans": Key("number", "the number of tcmalloc spans that contain blocks"),
    "spare": Key(
        "number",
        "the number of groups that would become empty if the blocks were packed",
        "packing does not apply to this allocator",
    ),
    "split_paths": Key(
        "",
        "paths below this path: some snapshots list them as rows of their own, others include them in this row",
    ),
    "sql_type": Key("", "the type of the column in DuckDB"),
    "stack": Key("", "the stack of the thread that ran out of memory, the outermost frame first"),
    "stacks_left": Key("bytes", "the unused bytes of thread stacks, below the stack pointers"),
    "start": Key("address", "the address of the first byte of the range"),
    "start_time": Key("ticks", "the start of the process, in clock ticks since the machine's boot", "unknown"),
    "state": Key("", "the state of the block", "the memory belongs to no allocator"),
    "status": Key(
        "number",
        "the exit status; for a program that gdbheap started, the status that os.wait() returned",
        "no program was started",
    ),
    "stays": Key(
        "",
        "why the other free resident memory (not in 'returnable') cannot be returned to the kernel, the largest part "
        "first",
    ),
    "step": Key("", "the step of the action that still runs: save or run; empty: the event is not 'acting'"),
    "still_there": Key("number", "the number of blocks that are in the first snapshot and in the last one"),
    "stood": Key("seconds", "the time for which threads were stopped, summed up over all threads"),
    "stopped": Key(
        "number", "the number of the call after which the replay was ended early", "the replay ran to its end"
    ),
    "stops": Key("number", "how many times a thread was stopped"),
    "summary": Key("", "the memory in use and the free memory, summed up over all allocators", "memory cannot be read"),
    "sums": Key("", "the sums over all rows that match, for each allocator"),
    "swapped": Key("bytes", "the number of bytes in swap", "unknown"),
    "system": Key("bytes", "the bytes that malloc has got from the kernel and not returned", "unknown"),
    "tally_of": Key("", "the property by which objects are grouped: size, length or module"),
    "target": Key(
        "", "the process, core or snapshot that the document describes", "the document describes no target, or several"
    ),
    "targets": Key("", "the processes, cores and snapshots that the document describes, if several were named"),
    "task_kind": Key("", "the kind of the tasks, if they are not asyncio's tasks", "they are asyncio's tasks"),
    "tasks": Key("number", "the number of tasks that reach most of the holder's memory"),
    "tcache": Key("bytes", "the bytes of chunks in thread caches", "the allocator has no such caches"),
    "temporary": Key("", "blocks that the next call of the same thread released"),
    "tenths": Key(
        "number", "the number of containers in each tenth of fullness: up to 10 % full, up to 20 % full, and so on"
    ),
    "text": Key("", "a text for people; for an object, a short text of its value", "there is no text, or it is hidden"),
    "theirs": Key("bytes", "the figure as malloc_stats() printed it in the process"),
    "thread_caches": Key("", "a row for the cache of each thread"),
    "threads": Key("number", "the number of threads"),
    "tick": Key(
        "seconds", "the mean time between two successive timestamps in the log", "the log has fewer than two timestamps"
    ),
    "tid": Key("number", "the thread's id", "the thread has ended"),
    "time": Key("seconds", "the time of the snapshot, the table or the message, in seconds since 1970"),
    "tmpfs_files": Key("", "tmpfs files of at least 1 MiB that the process can see but does not map"),
    "to_calls": Key("number", "the upper limit of the number of calls, exclusive"),
    "to": Key("bytes", "the upper limit of the size, exclusive"),
    "together": Key(
        "bytes",
        "the bytes that would be freed if this holder and the holders in 'also' were removed",
        "unknown, or less than 80 % of the memory that the holder reaches",
    ),
    "told": Key("number", "the number of objects whose requested size is known", "--detail was not given"),
    "too_late": Key("", "whether nothing was done, because the process ended before it was read"),
    "took": Key("", "whether malloc uses the value that was set", "nothing was set"),
    "top": Key(
        "bytes", "the bytes of the top chunk, at the end where the heap grows", "the allocator has no top chunk"
    ),
    "top_kept": Key(
        "bytes", "the resident bytes of the top chunk that malloc_trim(0) would keep", "residency is unknown"
    ),
    "top_predicted": Key("bytes", "the part of 'predicted' that is in the top chunk", "residency is unknown"),
    "total": Key("", "sums over all rows, including rows that are left out", "the rows have nothing to add up"),
    "traits": Key("", "more facts about the holder, such as how long a channel's queue is"),
    "transient": Key(
        "", "whether this may be a temporary state of a thread inside malloc, and is therefore not damage"
    ),
    "trend": Key(
        "",
        "figures that never fell from one snapshot to the next, and are higher in the last snapshot than in the first",
    ),
    "tunables": Key("", "the settings of malloc in this run"),
    "type": Key("", "the type: in Python module.qualname, in C++ the class", "unknown, or there are several types"),
    "type_count": Key("number", "the number of types in the file"),
    "types": Key("", "a row for each type"),
    "unclassified": Key("", "blocks whose kind was not found"),
    "unexplained": Key(
        "bytes", "the bytes after a damaged block that gdbheap had to skip, up to the next readable block"
    ),
    "unidentified": Key("", "the largest blocks in use whose contents were not identified"),
    "units": Key("", "the allocator's word for a group of pages, with its verb: for one group, and for several groups"),
    "unknown": Key("number", "the number of calls for blocks whose allocation is not in the log"),
    "unpatched": Key(
        "number",
        "the number of places in machine code that make system calls for memory and that gdbheap could not observe",
    ),
    "unread": Key("", "one line for each file that could not be read; names of functions are missing for this reason"),
    "unreadable": Key("number", "the number of entries or objects whose fields have impossible values"),
    "unseen": Key("", "changes of the mappings that no observed call explains", "the mappings were not followed"),
    "upper": Key("bytes", "the bytes of all requests; of each realloc, the whole new size counts"),
    "url": Key("", "the URL at which the metrics are served", "no metrics are served"),
    "usable": Key("bytes", "the usable bytes of the blocks, as malloc_usable_size() reports them", "the run failed"),
    "used": Key("bytes", "the bytes of blocks in use, including headers"),
    "used_count": Key("number", "the number of blocks in use", "the allocator has no such count"),
    "used_resident": Key("bytes", "the resident part of 'used'", "residency is unknown"),
    "usedpools": Key("address", "the address of the interpreter's array usedpools"),
    "uses_top": Key("", "whether malloc would take the request from the top chunk"),
    "uss": Key("bytes", "the bytes that no other process shares", "the kernel does not report it"),
    "value": Key(
        "", "the value; for a setting, the value that the program was started with", "no value is set, or it is unknown"
    ),
    "values": Key("number", "the number of different values"),
    "variable": Key(
        "",
        "the static variable of a library that points to the block",
        "no variable points to the block, or it has no symbol",
    ),
    "variable_bytes": Key("bytes", "the bytes of all blocks that the variable holds"),
    "variables": Key("number", "the number of variables for which the row stands"),
    "verdict": Key("", "the answer in one sentence"),
    "version": Key("number", "the version of control groups: 1 or 2"),
    "views": Key("number", "the number of other arrays that are views of this array's memory"),
    "virtual": Key("bytes", "the bytes of address space"),
    "waits": Key("", "the chain of functions that wait for one another, the outermost first"),
    "waits_for": Key(
        "", "the type of the object that the last coroutine of the chain waits for", "the coroutine waits for nothing"
    ),
    "warnings": Key("", "one line for each part of the answer that may be missing or wrong"),
    "wasted": Key(
        "bytes",
        "the bytes in the objects' blocks that the program did not request",
        "--detail was not given",
    ),
    "way": Key(
        "",
        "the path from the holder to its largest block, as text",
        "the path is short, it is unknown, or it does not explain most of the holder's bytes",
    ),
    "went": Key("bytes", "the bytes that were unmapped by calls that gdbheap did not observe"),
    "what": Key("", "the described thing, as text", "unknown, or the described blocks, objects or holders differ"),
    "where": Key("", "where gdbheap runs: host, docker, podman, kubernetes or systemd"),
    "whole": Key("bytes", "the resident part of 'pages'", "residency is unknown"),
    "whole_shape": Key(
        "number", "the lengths of the axes of the table that contains the column, or of the array itself"
    ),
    "whose": Key("", "the owner of the memory; for a setting, the allocator or runtime to which the setting belongs"),
    "why": Key("", "the reason, as text"),
    "why_ended": Key("", "why gdbheap stopped following, or why the watch ended"),
    "within": Key(
        "", "the id of a finding that may count some of the same bytes", "no other finding counts the same bytes"
    ),
    "within_a_call": Key("number", "the number of blocks that the very next call of any thread released"),
    "without": Key("number", "the number of allocating calls that have no stack"),
    "words": Key("", "the words of the program's command line"),
    "workers": Key("number", "the number of processes that the advice concerns"),
    "would_free": Key("bytes", "the bytes of resident pages that would be freed if the pinning blocks were freed"),
    "written": Key("", "bytes of formerly shared pages, by what was written to the pages", "no process was compared"),
    "zero": Key("bytes", "memory that is mapped to the kernel's zero page, and is therefore not resident", "unknown"),
}
"""The meaning of each key, in all records that have the key. VALUES and OTHERWISE have the exceptions."""

VALUES: dict[str, str] = {
    "tasks.Row.state": "the state: pending, cancelled, finished, created, suspended, running, ended or idle",
    "tasks.Waiting.state": "the state: pending, cancelled, finished, created, suspended, running, ended or idle",
    "records.TargetRecord.kind": "the kind of target: process, core or snapshot",
    "arenas.Bins.kind": "the kind of list: fast, tcache or bins; with --detail, unsorted, small and large replace bins",
    "allocator.FreeCache.kind": "the kind of cache: central, transfer or thread",
    "stack_frames.StackFrame.kind": "the language of the frame's code: python or native",
    "threads.ThreadFrame.kind": "the language of the frame's code: python or native",
    "heap_map.MapGroup.kind": "the allocator that owns the area, or else mmapped or other",
    "tasks.Row.kind": "the kind: task, coroutine, generator, async_generator or greenlet",
    "tasks.Waiting.kind": "the kind: task, coroutine, generator, async_generator or greenlet",
    "family.Advice.id": "freeze: call gc.freeze(); preload: load before the fork what each worker now loads itself",
    "accounts.ProgramRow.count": "the number of processes that run the program",
    "arenas.Mmapped.count": "the number of large blocks (mmap)",
    "arrays.KeptBy.count": "the number of views of the type",
    "block_kinds.KindRow.count": "the number of blocks of the kind",
    "block_kinds.Tally.count": "the number of blocks",
    "blocks.HeldBlocks.count": "the number of new blocks of the holder",
    "buffers.Buffer.count": "the number of blocks that the objects own",
    "buffers.BuffersTotal.count": "the number of blocks that objects own",
    "contexts.ContextName.count": "the number of contexts with the name",
    "difference.SizeChange.count": "the number of blocks of the size",
    "difference.TypeChange.count": "the number of objects of the type",
    "duplicates.ByValueTotal.count": "the number of objects",
    "duplicates.Duplicate.count": "the number of objects that store the value",
    "duplicates.Holding.count": "the number of references from the type's objects to copies of the value",
    "duplicates.ValueRow.count": "the number of objects with the value",
    "fill.FillRow.count": "the number of containers of the type",
    "groups.Group.count": "the number of objects of the group",
    "groups.GroupsTotal.count": "the number of objects",
    "groups.Unread.count": "the number of objects whose attribute cannot be read",
    "holder_change.HolderChange.count": "the number of blocks of the holder",
    "lines.LineRow.count": "the number of blocks that the line allocated",
    "lines.LinesTotal.count": "the number of blocks",
    "pyobjects.Count.count": "the number of live objects",
    "pyobjects.RootBlocks.count": "the number of blocks",
    "pyobjects.Tally.count": "the number of blocks",
    "pyobjects.TypeRow.count": "the number of live objects of the type",
    "retained_rows.RetainedRow.count": "the number of objects of the row, or the blocks in a program without Python",
    "rule.MainHolder.count": "the number of blocks of the holder",
    "rule.Trait.count": "the number of values of the label, or the database connections",
    "sampled_stacks.SampledRow.count": "the number of sampled blocks that the stack allocated",
    "sampled_stacks.SampledStacksTotal.count": "the number of sampled blocks",
    "shared_out.HolderPart.count": "the number of objects of the type, or of the blocks of the size",
    "call_stats.InUse.count": "the number of blocks in use",
    "call_stats.Moment.count": "the number of blocks in use",
    "call_stats.Point.count": "the number of blocks in use",
    "call_stats.Temporary.count": "the number of temporary blocks",
    "tallies.TalliesTotal.count": "the number of objects",
    "tallies.TallyRow.count": "the number of objects of the row",
    "tasks.Row.count": "the number of waiting objects of the row",
    "tasks.TasksTotal.count": "the number of waiting objects",
    "unreachable.Closing.count": "the number of groups of objects that reach one another through these references",
    "unreachable.LostHead.count": "the number of blocks that would be freed with this block, itself included",
    "unreachable.Lost.count": "the number of unreachable objects or blocks of the row",
}
"""More precise texts for a key of one record. Such a text lists the key's values, or names the things that it counts.

The keys of this dict have the form "file.Record.key".
"""

CHANGES = frozenset(
    {
        "holder_change.HolderChange",
        "holder_change.Since",
        "difference.Difference",
        "difference.TypeChange",
        "difference.SizeChange",
        "difference.ArenaChange",
        "difference.OwnerChange",
        "difference.FindingChange",
        "difference.LineChange",
    }
)
CHANGED = frozenset(
    {
        "arenas",
        "bytes",
        "buffers",
        "count",
        "free",
        "in_use",
        "own",
        "resident",
        "retained",
        "rss",
        "system",
        "top",
        "virtual",
    }
)
"""The keys whose numbers are differences in the records of CHANGES: the last snapshot's value minus the first's."""

OTHERWISE: dict[str, Key] = {
    "ledger.Page.rss": Key("", "the kernel's figures for resident memory"),
    "call_stats.CallCounts.free": Key("number", "the number of calls of free"),
    "aborted.Abort.frames": Key("", "the functions that called malloc or free, the innermost first, at most 50"),
    "call_stats.CallStats.calls": Key("", "the number of calls of each kind"),
    "call_stats.CallStats.peak": Key("", "the moment when the most bytes were in use"),
    "call_stats.CallCounts.mmap": Key("number", "the number of calls of mmap"),
    "query.Answered.rows": Key("", "the rows, each a list of values"),
    "difference.Difference.ledger": Key("", "the lines of the ledger that changed"),
    "difference.Difference.holders": Key(
        "",
        "holders whose bytes changed; the holder that grew the most comes first",
        "a snapshot has no list of holders",
    ),
    "holder_change.Since.holders": Key(
        "",
        "holders whose bytes changed; the holder that grew the most comes first",
        "a snapshot has no list of holders",
    ),
}
"""The meanings of keys that mean something else in one record. These keys should be renamed."""
