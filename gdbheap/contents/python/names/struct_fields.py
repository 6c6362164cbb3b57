"""Names for fields of C types that are in no table of members, from the structs in the types' C sources.

A name is a Python attribute. If only C code can reach the field, the name has an arrow, as in ``(chain)->source``. The
offsets hold for builds whose objects have the usual head; ``Release.at`` converts them for other builds. Sources:
Objects/ and Modules/ of CPython 2.7 to 3.13, numpy/ndarraytypes.h, lxml's etree.h and parser.pxi.
"""

from __future__ import annotations

from gdbheap.layout.cpython import Release

__all__ = ["C_FIELD", "struct_fields"]

C_FIELD = "->"
Names = dict[int, str]
ITERATED: Names = {16: "->func", 24: "->it"}
SEQUENCE: Names = {24: "->it_seq"}
DICT: Names = {16: "->dv_dict"}
ITERATED_DICT: Names = {16: "->di_dict"}
ITERATED_SET: Names = {16: "->si_set"}
CONTEXT: Names = {16: "->ctx_prev", 24: "->ctx_vars"}
VARIABLE: Names = {16: "name", 24: "->var_default"}
TOKEN: Names = {16: "->tok_ctx", 24: "var", 32: "->tok_oldval"}

FIELDS: dict[str, Names] = {
    "accumulate": {16: "->total", 24: "->it", 32: "->binop"},
    "callable_iterator": {16: "->it_callable", 24: "->it_sentinel"},
    "chain": {16: "->source", 24: "->active"},
    "compress": {16: "->data", 24: "->selectors"},
    "cycle": {16: "->it", 24: "->saved"},
    "dropwhile": ITERATED,
    "enumerate": {24: "->en_sit", 32: "->en_result"},
    "filter": ITERATED,
    "filterfalse": ITERATED,
    "groupby": {16: "->it", 24: "->keyfunc", 32: "->tgtkey", 40: "->currkey", 48: "->currvalue"},
    "islice": {16: "->it"},
    "map": {16: "->iters", 24: "->func"},
    "repeat": {16: "->element"},
    "starmap": ITERATED,
    "takewhile": ITERATED,
    "_tee": {16: "->dataobj"},
    "_tee_dataobject": {16: "->it", 32: "->nextlink"},
    "zip": {24: "->ittuple", 32: "->result"},
    "dict_keys": DICT,
    "dict_values": DICT,
    "dict_items": DICT,
    "dict_keyiterator": ITERATED_DICT,
    "dict_valueiterator": ITERATED_DICT,
    "dict_itemiterator": ITERATED_DICT,
    "iterator": SEQUENCE,
    "list_iterator": SEQUENCE,
    "list_reverseiterator": SEQUENCE,
    "mappingproxy": {16: "->mapping"},
    "method-wrapper": {16: "->base", 24: "__self__"},
    "reversed": {24: "->seq"},
    "set_iterator": ITERATED_SET,
    "tuple_iterator": SEQUENCE,
    "memoryview": {24: "->mbuf", 64: "obj"},
    "managedbuffer": {40: "->master.obj"},
    "Context": CONTEXT,
    "ContextVar": VARIABLE,
    "Token": TOKEN,
    "_contextvars.Context": CONTEXT,
    "_contextvars.ContextVar": VARIABLE,
    "_contextvars.Token": TOKEN,
    "hamt": {16: "->h_root"},
    "_ssl._SSLContext": {16: "->ctx"},
    "_ssl._SSLSocket": {24: "->ssl", 32: "context"},
    "functools._lru_list_elem": {40: "->key", 48: "->result"},
    "numpy.ndarray": {16: "data", 48: "base", 56: "dtype"},
    "lxml.etree._Document": {32: "->_prefix_tail", 40: "->_c_doc", 48: "->_parser"},
    "lxml.etree._Element": {16: "->_doc", 24: "->_c_node", 32: "->_tag"},
    "lxml.etree._ParserDictionaryContext": {
        24: "->_c_dict", 32: "->_default_parser", 40: "->_implied_parser_contexts",
    },
}  # fmt: skip
PYTHON_2: dict[str, Names] = {
    "callable-iterator": FIELDS["callable_iterator"],
    "dictionary-keyiterator": ITERATED_DICT,
    "dictionary-valueiterator": ITERATED_DICT,
    "dictionary-itemiterator": ITERATED_DICT,
    "listiterator": SEQUENCE,
    "listreverseiterator": SEQUENCE,
    "memoryview": {16: "->base", 32: "->view.obj"},
    "setiterator": ITERATED_SET,
    "tupleiterator": SEQUENCE,
    "_ssl._SSLSocket": {},
}
LRU_CACHE = "functools._lru_cache_wrapper"
# The fields of an lru_cache since 3.7, and up to 3.6: gh-72179 moved the most used fields to the front.
LRU_FIELDS: Names = {72: "->cache", 88: "__wrapped__"}
OLD_LRU_FIELDS: Names = {72: "__wrapped__", 88: "->cache", 96: "->cache_info_type"}
IMPORTED = "itertools."


def struct_fields(release: Release, name: str) -> Names:
    """Return {offset in this build: name} for the fields of the type called ``name``; empty for an unknown type."""
    name = name[len(IMPORTED) :] if name.startswith(IMPORTED) else name
    if name == LRU_CACHE:
        found = LRU_FIELDS if (release.major, release.minor) >= (3, 7) else OLD_LRU_FIELDS
    else:
        found = (PYTHON_2.get(name) if release.major == 2 else None) or FIELDS.get(name, {})
    short = name.rpartition(".")[2]
    return {
        release.at(offset): f" ({short}){text}" if text.startswith(C_FIELD) else text for offset, text in found.items()
    }
