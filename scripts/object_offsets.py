"""Print the fields of a CPython's objects, in the form of gdbheap/layout/tables/cpython.json.

Usage: object_offsets.py FILE [published | tasks]. FILE is an interpreter or a libpython with debug information, of 3.6
or later; `python3.N-dbg` will do, as its fields have the same offsets as in the release build. Prints one JSON object.
docs/adding-a-version.md lists the values that debug information lacks.

`published` prints the groups of `struct _Py_DebugOffsets` instead (3.13 and later), in the form of
tables/debug_offsets.json. `tasks` needs the file of the module _asyncio, and prints the fields of its tasks.
"""

from __future__ import annotations

import json
import subprocess
import sys

# For each key of the table, its possible fields, each as TYPE.FIELD[.FIELD], or only a TYPE for the type's size.
FIELDS = {
    "ht_qualname": ["PyHeapTypeObject.ht_qualname"],
    "ht_cached_keys": ["PyHeapTypeObject.ht_cached_keys"],
    "_ht_tpname": ["PyHeapTypeObject._ht_tpname"],
    "sizeof_heaptype": ["PyHeapTypeObject"],
    "sizeof_ascii": ["PyASCIIObject"],
    "sizeof_compact": ["PyCompactUnicodeObject"],
    "unicode_state": ["PyASCIIObject.state"],
    "unicode_length": ["PyASCIIObject.length"],
    "unicode_wstr": ["PyASCIIObject.wstr"],
    "unicode_wstr_length": ["PyCompactUnicodeObject.wstr_length"],
    "unicode_utf8": ["PyCompactUnicodeObject.utf8"],
    "unicode_data": ["PyUnicodeObject.data"],
    "ma_keys": ["PyDictObject.ma_keys"],
    "ma_version_tag": ["PyDictObject.ma_version_tag"],
    "ma_values": ["PyDictObject.ma_values"],
    "dk_size": ["struct _dictkeysobject.dk_size"],
    "dk_log2_size": ["struct _dictkeysobject.dk_log2_size"],
    "dk_log2_index_bytes": ["struct _dictkeysobject.dk_log2_index_bytes"],
    "dk_kind": ["struct _dictkeysobject.dk_kind"],
    "dk_nentries": ["struct _dictkeysobject.dk_nentries"],
    "dk_indices": ["struct _dictkeysobject.dk_indices"],
    "ob_item": ["PyListObject.ob_item"],
    "set_table": ["PySetObject.table"],
    "bytes_data": ["PyBytesObject.ob_sval"],
    "bytearray_data": ["PyByteArrayObject.ob_bytes_object", "PyByteArrayObject.ob_bytes"],
    "bytearray_start": ["PyByteArrayObject.ob_start"],
    "ob_digit": ["PyLongObject.long_value.ob_digit", "PyLongObject.ob_digit"],
    "lv_tag": ["PyLongObject.long_value.lv_tag"],
    "md_state": ["PyModuleObject.md_state"],
    "md_def": ["PyModuleObject.md_def"],
    "md_state_size": ["PyModuleObject.md_state_size"],
    "tuple_items": ["PyTupleObject.ob_item"],
    "func_code": ["PyFunctionObject.func_code"],
    "func_qualname": ["PyFunctionObject.func_qualname"],
    "co_filename": ["PyCodeObject.co_filename"],
    "co_name": ["PyCodeObject.co_name"],
    "co_qualname": ["PyCodeObject.co_qualname"],
    "co_firstlineno": ["PyCodeObject.co_firstlineno"],
    "values_header": ["struct _dictvalues.values"],
    "bytearray_alloc": ["PyByteArrayObject.ob_alloc"],
    "bytearray_bytes": ["PyByteArrayObject.ob_bytes"],
    "set_small": ["PySetObject.smalltable"],
    "sizeof_dict": ["PyDictObject"],
    "descr_method": ["PyMethodDescrObject.d_method"],
    "deque_left": ["dequeobject.leftblock"],
    "deque_left_index": ["dequeobject.leftindex"],
    "deque_free_count": ["dequeobject.numfreeblocks"],
    "deque_free": ["dequeobject.freeblocks"],
    "deque_items": ["struct BLOCK.data"],
    "deque_right_link": ["struct BLOCK.rightlink"],
    "exc_notes": ["PyBaseExceptionObject.notes"],
    "exc_traceback": ["PyBaseExceptionObject.traceback"],
    "exc_context": ["PyBaseExceptionObject.context"],
    "exc_cause": ["PyBaseExceptionObject.cause"],
    "gen_qualname": ["PyGenObject.gi_qualname"],
    "gi_exc_state": ["PyGenObject.gi_exc_state"],
    "ts_profile": ["PyThreadState.c_profileobj"],
    "interp_codecs": ["PyInterpreterState.codecs.search_path", "PyInterpreterState.codec_search_path"],
    "interp_forkers": ["PyInterpreterState.before_forkers"],
    "interp_atexit": ["PyInterpreterState.atexit.callbacks"],
    "interp_atexit_module": ["PyInterpreterState.pyexitmodule"],
    "interp_audit_hooks": ["PyInterpreterState.audit_hooks"],
    "ts_exc_info": ["PyThreadState.exc_info"],
    "ts_exc_value": ["PyThreadState.exc_value"],
    "exc_item_value": ["_PyErr_StackItem.exc_value"],
    "exc_item_previous": ["_PyErr_StackItem.previous_item"],
    "gen_frame": ["PyGenObject.gi_frame"],
    "code_bytes": ["PyCodeObject.co_code"],
}
# The same for the module _asyncio, which has its own debug information. From 3.14 on it publishes these offsets.
TASK_FIELDS = {
    "task_state": ["TaskObj.task_state"],
    "task_waiter": ["TaskObj.task_fut_waiter"],
    "task_coro": ["TaskObj.task_coro"],
    "task_name": ["TaskObj.task_name"],
}


def place(path: str) -> int | None:
    """Return the offset of a field or the size of a type; None if the name is unknown. Runs in gdb."""
    import gdb

    name, *fields = path.split(".")
    try:
        # A field may be in an unnamed struct. gdb finds it by an expression.
        text = f"&(({name} *) 0)->{'.'.join(fields)}" if fields else f"sizeof({name})"
        return int(gdb.parse_and_eval(f"(unsigned long) {text}"))
    except gdb.error:
        return None


def offsets() -> dict[str, int | None]:
    """Return the table. Runs in gdb."""
    return _places(FIELDS)


def tasks() -> dict[str, int | None]:
    """Return the fields of tasks. Runs in gdb."""
    return _places(TASK_FIELDS)


def _places(fields: dict[str, list[str]]) -> dict[str, int | None]:
    found = {key: [at for at in map(place, paths) if at is not None] for key, paths in fields.items()}
    return {key: at[0] if at else None for key, at in found.items()}


def published() -> dict[str, list[str]]:
    """Return the groups of the interpreter's own table, with the names of their words. Runs in gdb."""
    import gdb

    groups: dict[str, list[str]] = {}
    for group in gdb.lookup_type("struct _Py_DebugOffsets").fields():
        kind = group.type.strip_typedefs() if group.type is not None else None
        if kind is not None and kind.code == gdb.TYPE_CODE_STRUCT:
            groups[str(group.name)] = [str(field.name) for field in kind.fields()]
    return groups


def main() -> int:
    """Run gdb on the file."""
    what = next((word for word in ("published", "tasks") if sys.argv[2:] == [word]), "offsets")
    script = f"python import sys; sys.path.insert(0, {sys.path[0]!r}); import object_offsets as o; o.tell(o.{what}())"
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", script, sys.argv[1]]
    done = subprocess.run(command, capture_output=True, text=True)
    answer = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if answer is None or not any(json.loads(answer).values()):
        print(done.stderr + f"{sys.argv[1]} has no debug information of CPython's", file=sys.stderr)
        return 1
    print(answer)
    return 0


def tell(found: object) -> None:
    """Print the result. Runs in gdb."""
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
