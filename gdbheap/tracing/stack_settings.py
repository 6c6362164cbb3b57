"""The setting that tells a recorder how often to record stacks, and where Python stores its frames."""

from __future__ import annotations

from gdbheap.layout.shipped_tables import table

__all__ = ["EVERY_CALL", "STACKS_ENVIRONMENT", "USUAL_MEAN", "stack_settings"]

STACKS_ENVIRONMENT = "GDBHEAP_STACKS"
USUAL_MEAN = 512 << 10
EVERY_CALL = 1
# The first release with _PyRuntime, through which the interpreter's threads are found.
OLDEST = (3, 7)
# The fields of the shipped table cpython.json, in the order of native/recorder/src/stacks/settings.rs.
FIELDS = (
    "interp_tstates", "ts_next", "ts_interp", "ts_frame", "ts_cframe", "cf_frame", "thread_id", "f_code", "f_back",
    "f_previous", "f_instruction", "f_lasti", "f_lasti_unit", "f_owner", "f_is_entry", "f_tags", "co_code", "co_name",
    "co_qualname", "co_filename", "co_firstlineno", "co_linetable", "co_lnotab", "sizeof_ascii", "sizeof_compact",
    "unicode_state", "unicode_length", "bytes_data",
)  # fmt: skip


def stack_settings(mean: int) -> str:
    """Return the value of the environment variable that tells a recorder to record a stack every ``mean`` bytes on
    average (1: with each call)."""
    releases = [
        f"{name}:{','.join(str(-1 if (at := fields.get(field)) is None else int(at)) for field in FIELDS)}"
        for name, fields in table("cpython")["releases"].items()
        if tuple(map(int, name.split("."))) >= OLDEST
    ]
    return " ".join([str(mean), *releases])
