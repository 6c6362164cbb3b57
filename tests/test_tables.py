"""The shipped tables: every key is known and every value has its type, and the code uses only names that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from gdbheap.errors import Unsupported
from gdbheap.layout.cpython import Release, field_names
from gdbheap.layout.shipped_tables import table

LARGEST = 1 << 16
# The state of an interpreter contains large tables.
LARGEST_STATE = 1 << 20
RELEASE = re.compile(r"[23]\.\d+")
# Keys of a release that are no offset or size from 0 up: offsets of fields before an object, bits of tp_flags,
# presence, numbers of bits and bytes, values of a state.
BEFORE = {"managed_dict", "managed_values"}
BITS = {"flags_pre_header", "flag_inline_values", "f_tags", "managed_values_tag"}
SWITCHES = {"traceback_text", "f_top_is_pointer", "bytearray_escapes", "bytearray_is_bytes", "linetable_entries"}
STATES = {"gi_created", "gi_delegating", "gi_executing"}
NUMBERS = {
    "gi_awaited_depth",
    "unicode_state_shift",
    "gi_frame_gone",
    "deque_room",
    "f_lasti_unit",
    "dict_version_unit",
}
LISTS = {"f_fields"}
NAMES = {"names"}
OFFSETS = set(
    """
    _ht_tpname bytearray_alloc bytearray_bytes bytearray_data bytearray_start bytes_data cf_frame co_cellvars co_code
    code_bytes co_copies co_filename co_firstlineno co_freevars co_linetable co_lnotab co_localsplusnames co_name
    co_nlocalsplus co_qualname co_unique_id co_varnames
    deque_free deque_free_count deque_items deque_left deque_left_index deque_length deque_right_link descr_method
    dict_small dk_indices
    dk_kind dk_log2_index_bytes dk_log2_size dk_nentries dk_size exc_cause exc_context exc_item_previous exc_item_value
    exc_message exc_notes exc_traceback f_back f_code f_code_copy
    f_executing f_instruction f_is_entry f_lasti f_locals f_owner f_previous
    f_stack f_top frame_data
    func_annotations func_builtins func_closure func_code func_defaults func_dict func_doc func_globals func_kwdefaults
    func_module func_name func_qualname gc_head gen_frame gen_qualname gi_exc_state
    gi_frame_state gi_iframe gi_running ht_cached_keys ht_name ht_qualname
    interp_atexit interp_atexit_module interp_audit_hooks interp_codecs interp_forkers interp_tstates
    lv_tag ma_keys ma_mask ma_table ma_used ma_values md_def md_state md_state_size ob_digit ob_item
    set_key set_small set_table sizeof_ascii sizeof_compact sizeof_dict sizeof_heaptype sizeof_type slab_block
    slab_header slab_item task_coro task_name task_state task_waiter
    thread_id ts_cframe ts_exc_info ts_exc_value ts_frame ts_interp ts_next ts_profile tuple_items unicode_data
    unicode_length unicode_state unicode_utf8 unicode_wstr unicode_wstr_length ma_version_tag values_header
    """.split()
)
KNOWN = BEFORE | STATES | BITS | SWITCHES | NUMBERS | LISTS | NAMES | OFFSETS
# A name of the tables, with an underscore inside.
LIKE_A_NAME = re.compile(r"_?[a-z][a-z0-9]*(_[a-z0-9]+)+")
ASKING = ("get", "offsets")


def is_number(value: Any, least: int = 0, most: int = LARGEST) -> bool:
    """Return whether a value is a number within these bounds; True and False are none."""
    return type(value) is int and least <= value <= most


def is_valid(key: str, value: Any) -> bool:
    """Return whether a value of a release is valid for a key; null is valid for each key of a number."""
    if key in LISTS:
        return isinstance(value, list) and bool(value) and all(map(is_number, value)) and len(set(value)) == len(value)
    if key in NAMES:
        return isinstance(value, dict) and all(isinstance(word, str) for pair in value.items() for word in pair)
    if value is None:
        return True
    if key in BEFORE:
        return is_number(value, -64, -8) and value % 8 == 0
    if key in STATES:
        return is_number(value, -8, 8)
    if key in SWITCHES:
        return value in (0, 1) and is_number(value)
    return key in KNOWN and is_number(value, most=LARGEST_STATE if key.startswith("interp_") else LARGEST)


def rows() -> list[tuple[str, dict[str, Any]]]:
    """Return (place, row) of each release of cpython.json, and of each change to one."""
    cpython = table("cpython")
    found = [(release, row) for release, row in cpython["releases"].items()]
    for kind in ("traced", "free_threaded"):
        found += [(f"{kind} {release}", row) for release, row in cpython[kind]["releases"].items()]
    return found


@pytest.mark.parametrize(("where", "row"), rows())
def test_keys_of_a_release(where: str, row: dict[str, Any]) -> None:
    """Check that every key is known, and has a value of its type."""
    assert RELEASE.fullmatch(where.split()[-1])
    wrong = {key: value for key, value in row.items() if not is_valid(key, value)}
    assert not wrong


def test_the_rest_of_cpython() -> None:
    """Check that the parts counted from objects and frames are fields, and that the changes of builds have their
    bytes and their source."""
    cpython = table("cpython")
    assert set(cpython) == {
        "source", "counted_from_objects", "counted_from_frames", "traced", "free_threaded", "releases",
    }  # fmt: skip
    counted = cpython["counted_from_objects"] + cpython["counted_from_frames"]
    assert len(set(counted)) == len(counted) and set(counted) <= OFFSETS | LISTS
    for kind in ("traced", "free_threaded"):
        assert set(cpython[kind]) == {"source", "added", "releases"} and is_number(cpython[kind]["added"], 8, 64)
        assert set(cpython[kind]["releases"]) <= set(cpython["releases"])


def test_published_tables() -> None:
    """Check that each release's groups have words with one name each, and that the words used from them exist and
    are keys of releases."""
    found = table("debug_offsets")
    assert set(found) == {"source", "fields", "free_threaded_fields", "sizes", "fixed", "releases"}
    assert set(found["releases"]) <= set(table("cpython")["releases"])
    for groups in found["releases"].values():
        assert all(names and len(set(names)) == len(names) for names in groups.values())
        assert "ob_type" in groups["pyobject"] and all("size" in groups[one] for one in groups if "object" in one)
    known = {(group, name) for groups in found["releases"].values() for group in groups for name in groups[group]}
    fields = {**found["fields"], **found["free_threaded_fields"]}
    taken = [tuple(place[:2]) for place in chain(fields.values(), found["sizes"].values())]
    assert set(taken) <= known and len(set(taken)) == len(taken)
    assert {(group, name) for group in found["fixed"] for name in found["fixed"][group]} <= known
    assert set(fields) | set(found["sizes"]) <= OFFSETS and len(fields) > len(found["fields"])
    assert all(width in (1, 2, 4, 8) for _group, _name, width in fields.values())


MALLOC = {
    "malloc_state": {
        "since", "top", "bins", "next", "attached_threads", "system_mem", "max_system_mem", "size", "fastbinsY",
    },
    "malloc_par": {
        "since", "n_mmaps", "mmapped_unit", "fast_bins", "mmapped_mem", "sbrk_base", "thp_pagesize", "hp_pagesize",
        "tcache_bins", "tcache_count",
    },
    "tcache_perthread_struct": {"since", "chunk", "largest_chunk", "counts", "entries", "count_size", "remaining"},
}  # fmt: skip


@pytest.mark.parametrize("name", MALLOC)
def test_keys_of_glibc(name: str) -> None:
    """Check that every layout has all keys of its struct, from the newest to the oldest."""
    assert set(table("glibc")) == {"source", *MALLOC}
    layouts = table("glibc")[name]
    assert all(set(layout) == MALLOC[name] for layout in layouts)
    since = [tuple(map(int, layout["since"].split("."))) for layout in layouts]
    assert since == sorted(since, reverse=True)
    for layout in layouts:
        values = [value for key, value in layout.items() if key != "since"]
        assert all(value is None or isinstance(value, bool) or is_number(value) for value in values)


def sources() -> dict[str, ast.Module]:
    """Return every module below gdbheap/ by its path."""
    found = sorted((ROOT / "gdbheap").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(Path(path).read_text(encoding="utf-8")) for path in found}


def is_release(node: ast.expr) -> bool:
    """Return whether an expression is named like a release: ``release``, ``self._release``, ``objects.release``."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.lstrip("_") == "release"


def strings(node: ast.AST) -> set[str]:
    """Return the text constants in a piece of code."""
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def asked(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the argument of each subscript and each call on a release."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_release(node.value):
            yield node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ASKING and is_release(node.func.value):
                yield node.args[0]


def names_asked(tree: ast.Module) -> set[str]:
    """Return the names that a module asks a release for: directly, and by variables.

    Names in variables are the constants of the same function, the first one of each call of that function, and the keys
    of the module's own dictionaries of fields.
    """
    found = {name for expression in asked(tree) for name in strings(expression)}
    helpers = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        mapped = any(isinstance(node, ast.Call) and passes_get(node) for node in ast.walk(function))
        if mapped or any(not strings(expression) for expression in asked(function)):
            helpers.add(function.name)
            body = [node for node in function.body if not isinstance(node, ast.Expr) or not strings(node.value)]
            found |= {name for node in body for name in strings(node) if LIKE_A_NAME.fullmatch(name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in helpers:
            found |= set(sorted(first) if (first := first_string(node)) else ())
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            if isinstance(node.targets[0], ast.Name) and node.targets[0].id.endswith("_FIELDS"):
                found |= {name for pair in zip(node.value.keys, node.value.values) for name in text_key(*pair)}
    return found


def text_key(key: ast.expr | None, value: ast.expr) -> set[str]:
    """Return the key of a dictionary's item if key and value are texts."""
    return strings(key) if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) else set()


def passes_get(call: ast.Call) -> bool:
    """Return whether an argument of a call is the method ``get`` of a release, to be called with each of several
    names."""
    return any(isinstance(one, ast.Attribute) and one.attr in ASKING and is_release(one.value) for one in call.args)


def first_string(call: ast.Call) -> set[str]:
    """Return the first text constant among the arguments."""
    found = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return set(found[:1])


def test_every_name_asked_for_exists() -> None:
    """Check that a name that the code asks of a release is in the table of at least one."""
    unknown = {}
    for path, tree in sources().items():
        missing = names_asked(tree) - field_names()
        if missing:
            unknown[path] = sorted(missing)
    assert not unknown


def test_every_name_is_asked_for() -> None:
    """Check that the code reads every name in the table: none is unused."""
    read = set().union(*(names_asked(tree) for tree in sources().values()))
    assert field_names() - read - NAMES == set()


def test_a_name_that_no_release_has() -> None:
    """Check that an unknown name is an error of the code, and not reported as missing in the target."""
    release = Release("3.13.0", 3, 13, table("cpython")["releases"]["3.13"])
    for ask in (release.__getitem__, release.get, release.offsets):
        with pytest.raises(KeyError, match="no_such_field"):
            ask("no_such_field")
    with pytest.raises(Unsupported, match=r"no ma_table for Python 3\.13\.0"):
        release["ma_table"]
    assert release.get("ma_table") is None and release.offsets("f_fields") == [0, 16, 40, 48]
