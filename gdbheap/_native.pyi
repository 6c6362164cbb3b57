"""Types of the native module, written by scripts/native_stub.py; the docstrings are in native/binding/src."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gdbheap.machines.machine import Machine

class HeldProcess(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def descriptor(self) -> int: ...

PRESENT: int
SWAPPED: int
ZERO: int
OWN_MEMORY: int
NO_OWN_MEMORY: int
NOT_STARTED: int
BY_SIGNAL: int
STATES: list[str]

class Fault(Exception): ...

Report = Callable[[int, int], object]
ReadMemory = Callable[[int, int], bytes]
Bytes = tuple[int, bytes]
Frames = Sequence[tuple[int, int, int]]
FunctionCall = tuple[int, Sequence[int]]
LabelledRange = tuple[int, int, int]
MappedBy = tuple[int, int, int, int]
Place = tuple[int, int]
Range = tuple[int, int]
Sizes = tuple[int, int]
SourceLine = tuple[bytes | None, bytes, int]
Spot = tuple[int, int, int]
StateRun = tuple[int, int, int]
SymbolRow = tuple[int, int, str]

class Text(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class Cave(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def bytes(self) -> bytes: ...
    @property
    def text(self) -> int: ...
    @property
    def stays(self) -> bool: ...

class Condition(Protocol):
    @property
    def operand(self) -> str: ...
    @property
    def test(self) -> str: ...
    @property
    def value(self) -> int: ...

class LeftStub(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def original(self) -> bytes: ...
    @property
    def replacement(self) -> bytes: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class Patch(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def original(self) -> bytes: ...
    @property
    def replacement(self) -> bytes: ...
    @property
    def stub_at(self) -> int: ...
    @property
    def stub(self) -> bytes: ...
    @property
    def trap(self) -> int: ...
    @property
    def seen_at(self) -> int: ...

class CodePlace(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def before(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def function(self) -> bytes: ...
    @property
    def conditions(self) -> Sequence[Condition]: ...

class CacheList(Protocol):
    @property
    def first(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def size(self) -> int: ...

class Stretch(Protocol):
    @property
    def arena(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def top(self) -> int: ...
    @property
    def fast(self) -> Sequence[int]: ...

class ChunkFilter(Protocol):
    @property
    def states(self) -> int: ...
    @property
    def minimum(self) -> int: ...
    @property
    def maximum(self) -> int: ...
    @property
    def arena(self) -> int | None: ...

class MmappedStyle(Protocol):
    @property
    def header_outside(self) -> bool: ...
    @property
    def moved(self) -> bool: ...

class StateLayout(Protocol):
    @property
    def top(self) -> int: ...
    @property
    def bins(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def system_mem(self) -> int: ...
    @property
    def max_system_mem(self) -> int: ...
    @property
    def fastbins(self) -> int | None: ...
    @property
    def size(self) -> int: ...

class Form(Protocol):
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def opaque(self) -> int: ...
    @property
    def fields(self) -> Sequence[int]: ...
    @property
    def skipped(self) -> Sequence[int]: ...
    @property
    def items(self) -> int: ...
    @property
    def frame(self) -> int: ...
    @property
    def frame_state(self) -> int: ...
    @property
    def frame_gone(self) -> int: ...
    @property
    def frame_pointer(self) -> int: ...
    @property
    def table(self) -> int: ...
    @property
    def table_pointer(self) -> int: ...
    @property
    def table_mask(self) -> int: ...
    @property
    def table_step(self) -> int: ...
    @property
    def table_first(self) -> int: ...
    @property
    def table_words(self) -> int: ...
    @property
    def is_handle(self) -> bool: ...

class FrameLayout(Protocol):
    @property
    def fields(self) -> Sequence[int]: ...
    @property
    def code(self) -> int: ...
    @property
    def locals(self) -> int: ...
    @property
    def top(self) -> int: ...
    @property
    def top_is_pointer(self) -> bool: ...
    @property
    def executing(self) -> int: ...
    @property
    def stack(self) -> int: ...
    @property
    def code_locals(self) -> int: ...
    @property
    def tags(self) -> int: ...

class KeysLayout(Protocol):
    @property
    def kind(self) -> int: ...
    @property
    def log2_index_bytes(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def indices(self) -> int: ...

class GraphLayout(Protocol):
    @property
    def ob_size(self) -> int: ...
    @property
    def set_key(self) -> int: ...
    @property
    def tp_weaklistoffset(self) -> int: ...
    @property
    def tp_dictoffset(self) -> int: ...
    @property
    def sizeof_type(self) -> int: ...
    @property
    def forms(self) -> Sequence[Form]: ...
    @property
    def frame(self) -> FrameLayout | None: ...
    @property
    def keys(self) -> KeysLayout | None: ...
    @property
    def flag_heap_type(self) -> int: ...
    @property
    def flag_managed_dict(self) -> int: ...
    @property
    def managed_dict(self) -> int: ...
    @property
    def flag_inline_values(self) -> int: ...
    @property
    def closed(self) -> Sequence[str]: ...
    @property
    def closed_families(self) -> Sequence[str]: ...
    @property
    def interpreters(self) -> Sequence[int]: ...

class Root(Protocol):
    @property
    def phase(self) -> int: ...
    @property
    def pointers(self) -> Sequence[int]: ...
    @property
    def ranges(self) -> Sequence[tuple[int, int]]: ...

class Tables(Protocol):
    @property
    def data(self) -> Sequence[tuple[int, int]]: ...
    @property
    def code(self) -> Sequence[tuple[int, int]]: ...

class CollectorFacts(Protocol):
    @property
    def frames(self) -> Sequence[int]: ...
    @property
    def code(self) -> int: ...
    @property
    def finalized(self) -> Sequence[int]: ...
    @property
    def frozen(self) -> Sequence[int]: ...

class MappingRow(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def kind(self) -> int: ...
    @property
    def file(self) -> int: ...
    @property
    def offset(self) -> int: ...

class SegmentRow(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def file(self) -> int: ...
    @property
    def offset(self) -> int: ...

class OwnedRange(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class WordTest(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def mask(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...

class Extent(Protocol):
    @property
    def rule(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def unit(self) -> int: ...
    @property
    def more(self) -> int: ...

class Claim(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def test(self) -> int: ...
    @property
    def mask(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def role(self) -> int: ...
    @property
    def follow(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def contents(self) -> int: ...
    @property
    def count_at(self) -> int: ...
    @property
    def extent(self) -> Extent: ...

class Family(Protocol):
    @property
    def flags(self) -> int: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def claims(self) -> Sequence[Claim]: ...

class Slab(Protocol):
    @property
    def block(self) -> int: ...
    @property
    def header(self) -> int: ...
    @property
    def item(self) -> int: ...
    @property
    def names(self) -> Sequence[str]: ...

class TypeLayout(Protocol):
    @property
    def ob_refcnt(self) -> int: ...
    @property
    def ob_type(self) -> int: ...
    @property
    def tp_name(self) -> int: ...
    @property
    def tp_basicsize(self) -> int: ...
    @property
    def tp_itemsize(self) -> int: ...
    @property
    def tp_flags(self) -> int: ...
    @property
    def tp_base(self) -> int: ...
    @property
    def smallest_heap_type(self) -> int: ...
    @property
    def flag_gc(self) -> int: ...
    @property
    def flag_type_subclass(self) -> int: ...
    @property
    def hook(self) -> int: ...
    @property
    def gc_head(self) -> int: ...
    @property
    def flags_pre_header(self) -> int: ...
    @property
    def pre_header(self) -> int: ...
    @property
    def flag_no_minimum(self) -> int: ...
    @property
    def flags_plain(self) -> int: ...
    @property
    def shortened(self) -> Sequence[tuple[str, int]]: ...
    @property
    def state_size(self) -> Sequence[int]: ...
    @property
    def slab(self) -> Slab | None: ...
    @property
    def families(self) -> Sequence[Family]: ...
    @property
    def tp_dealloc(self) -> int: ...
    @property
    def class_dealloc(self) -> int: ...
    @property
    def closed(self) -> Sequence[str]: ...
    @property
    def reached_role(self) -> int: ...
    @property
    def names(self) -> Sequence[tuple[int, str]]: ...
    @property
    def data(self) -> Sequence[tuple[int, int]]: ...
    @property
    def unwalked(self) -> Sequence[tuple[int, int]]: ...

class CensusRequest(Protocol):
    @property
    def roots(self) -> Sequence[int]: ...
    @property
    def watched(self) -> Sequence[int]: ...
    @property
    def unknown(self) -> int: ...

class SizeFields(Protocol):
    @property
    def ob_size(self) -> int: ...
    @property
    def tagged(self) -> bool: ...
    @property
    def flag_int(self) -> int: ...
    @property
    def flag_str(self) -> int: ...
    @property
    def str_length(self) -> int: ...
    @property
    def str_state(self) -> int: ...
    @property
    def str_state_shift(self) -> int: ...
    @property
    def sizeof_ascii(self) -> int: ...
    @property
    def sizeof_compact(self) -> int: ...
    @property
    def flag_inline(self) -> int: ...

class TraceTable(Protocol):
    @property
    def buckets(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def key(self) -> int: ...

class Values(Protocol):
    @property
    def kinds(self) -> Sequence[tuple[int, int]]: ...
    @property
    def sizing(self) -> SizeFields: ...
    @property
    def str_data(self) -> int: ...
    @property
    def bytes_data(self) -> int: ...
    @property
    def tuple_items(self) -> int: ...
    @property
    def ob_digit(self) -> int: ...
    @property
    def number(self) -> int: ...

class TableHead(Protocol):
    @property
    def slots_at(self) -> int: ...
    @property
    def log2_at(self) -> int: ...
    @property
    def kind_at(self) -> int: ...
    @property
    def indices(self) -> int: ...

class Measures(Protocol):
    @property
    def sizing(self) -> SizeFields: ...
    @property
    def keys(self) -> TableHead | None: ...
    @property
    def plain(self) -> int: ...
    @property
    def flag_heap_type(self) -> int: ...

class GrowthRule(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def size_at(self) -> int: ...
    @property
    def allocated_at(self) -> int: ...
    @property
    def data_at(self) -> int: ...
    @property
    def first_at(self) -> int: ...
    @property
    def item(self) -> int: ...
    @property
    def behind(self) -> int: ...

class Entries(Protocol):
    @property
    def text_flags(self) -> int: ...
    @property
    def text_at(self) -> int: ...
    @property
    def first_names(self) -> Sequence[str]: ...

class TableRule(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def used_at(self) -> int: ...
    @property
    def table_at(self) -> int: ...
    @property
    def mask_at(self) -> int: ...
    @property
    def shared_at(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def head(self) -> TableHead | None: ...
    @property
    def entries(self) -> Entries | None: ...

class CallPlan(Protocol):
    @property
    def calls(self) -> Sequence[FunctionCall]: ...
    @property
    def restorer(self) -> int: ...
    @property
    def keeper(self) -> int: ...
    @property
    def keeper_register(self) -> int: ...
    @property
    def keeper_skips(self) -> int: ...
    @property
    def captured(self) -> int: ...
    @property
    def filtered(self) -> bool: ...
    @property
    def limit(self) -> float: ...
    @property
    def leaves(self) -> bool: ...
    @property
    def kept(self) -> Sequence[Bytes]: ...
    @property
    def freed(self) -> Sequence[Bytes]: ...

class ArenaRow(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def carved(self) -> int: ...
    @property
    def size(self) -> int: ...

class PoolSample(Protocol):
    @property
    def pool(self) -> int: ...
    @property
    def arenaindex(self) -> int: ...

class BlockQuery(Protocol):
    @property
    def least(self) -> int: ...
    @property
    def largest(self) -> int: ...
    @property
    def used(self) -> bool: ...
    @property
    def cached(self) -> bool: ...
    @property
    def arena(self) -> tuple[int, int] | None: ...
    @property
    def order(self) -> str: ...
    @property
    def most(self) -> int: ...

class Module(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def table_start(self) -> int: ...
    @property
    def table_end(self) -> int: ...

class Libraries(Protocol):
    @property
    def libstdcxx(self) -> bool: ...
    @property
    def libcxx(self) -> bool: ...
    @property
    def rust(self) -> bool: ...

class CallKinds:
    malloc: Final[int]
    calloc: Final[int]
    realloc: Final[int]
    memalign: Final[int]
    free: Final[int]
    mmap: Final[int]
    munmap: Final[int]
    mremap: Final[int]
    mallopt: Final[int]
    malloc_trim: Final[int]
    fork: Final[int]

class CallsInUse:
    blocks: Final[int]
    bytes: Final[int]
    usable: Final[int]

class CallMoment:
    call: Final[int]
    nanoseconds: Final[int]
    in_use: Final[CallsInUse]

class CallResizes:
    grown: Final[int]
    shrunk: Final[int]
    moved: Final[int]
    copied: Final[int]

class LifeSpan:
    start: Final[int]
    end: Final[int]
    blocks: Final[int]

class Lives:
    zero: Final[int]
    median: Final[int | None]
    most_of: Final[int | None]
    longest: Final[int | None]
    spans: Final[list[LifeSpan]]

class CallSize:
    start: Final[int]
    end: Final[int]
    calls: Final[int]
    bytes: Final[int]
    live: Final[int]
    live_bytes: Final[int]

class CurvePoint:
    calls: Final[int]
    nanoseconds: Final[int]
    blocks: Final[int]
    bytes: Final[int]
    most_bytes: Final[int]

class CallStats:
    calls: Final[int]
    kinds: Final[CallKinds]
    threads: Final[int]
    blocks: Final[int]
    released: Final[int]
    unseen: Final[int]
    failed: Final[int]
    nothing: Final[int]
    unknown: Final[int]
    live: Final[CallsInUse]
    peak: Final[CallMoment]
    most: Final[CallMoment]
    upper: Final[int]
    usable: Final[int]
    lower: Final[int]
    resized: Final[CallResizes]
    temporary: Final[int]
    temporary_bytes: Final[int]
    nanoseconds: Final[int]
    ticks: Final[int]
    lives_in_calls: Final[Lives]
    lives_in_nanoseconds: Final[Lives]
    sizes: Final[list[CallSize]]
    by_call: Final[list[CurvePoint]]
    by_time: Final[list[CurvePoint]]
    whole: Final[bool]

class Claimed(BlockStore):
    def __init__(self, places: Sequence[Range]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def sample(self, most: int) -> list[Place]: ...
    def find(self, address: int) -> Place | None: ...

class ReplayPlan:
    calls: Final[int]
    threads: Final[int]
    unknown: Final[int]
    failed: Final[int]
    mappings: Final[int]
    live_blocks: Final[int]
    live_bytes: Final[int]
    peak_bytes: Final[int]
    peak_call: Final[int]
    whole: Final[bool]
    inherited: Final[int]
    python: Final[PythonCalls]

class PythonCalls:
    calls: Final[int]
    unknown: Final[int]
    live_blocks: Final[int]
    live_bytes: Final[int]
    peak_bytes: Final[int]

class LoadedCode:
    start: Final[int]
    end: Final[int]
    bias: Final[int]
    build_id: Final[bytes]
    path: Final[bytes]

class PythonCode:
    release: Final[int]
    first_line: Final[int]
    name: Final[tuple[int, bytes]]
    file: Final[tuple[int, bytes]]
    lines: Final[bytes]

class CallStack:
    native: Final[list[tuple[int | None, int]]]
    python: Final[list[list[tuple[int | None, int]]]]
    cut: Final[bool]
    torn: Final[bool]
    is_python: Final[bool]

class StackShare:
    stack: Final[int]
    bytes: Final[float]
    blocks: Final[float]
    allocated_bytes: Final[float]
    allocated_blocks: Final[float]

class BlockMaker:
    wanted: Final[int]
    address: Final[int]
    size: Final[int]
    stack: Final[int]

class StackCaller:
    call: Final[int]
    stack: Final[int]

class StackMoment:
    call: Final[int]
    shares: Final[list[StackShare]]
    sampled_blocks: Final[int]

class LiveStacks:
    objects: Final[list[LoadedCode]]
    codes: Final[list[PythonCode]]
    stacks: Final[list[CallStack]]
    moments: Final[list[StackMoment]]
    makers: Final[list[BlockMaker]]
    callers: Final[list[StackCaller]]
    calls: Final[int]
    without: Final[int]
    whole: Final[bool]

class CallSite:
    address: Final[int]
    before: Final[int]
    number: Final[int]
    start: Final[int]
    end: Final[int]

class LeftPatch:
    address: Final[int]
    original: Final[bytes]
    replacement: Final[bytes]
    start: Final[int]
    end: Final[int]

class CodePatch:
    address: Final[int]
    original: Final[bytes]
    replacement: Final[bytes]
    stub_at: Final[int]
    stub: Final[bytes]
    trap: Final[int]
    seen_at: Final[int]

class PlaceHit:
    pid: Final[int]
    tid: Final[int]
    place: Final[int | None]
    registers: Final[list[int]]
    stack: Final[bytes | None]
    doubtful: Final[bool]

class Tracepoint:
    id: Final[int]
    number_at: Final[int]

class Follower:
    @staticmethod
    def of_process(
        process: int | HeldProcess, memory: int, patches: Sequence[Patch], signal: int, waits: bool, limit: float
    ) -> Follower: ...
    @staticmethod
    def of_program(words: Sequence[bytes], numbers: Sequence[int], waits: bool, limit: float) -> Follower: ...
    @staticmethod
    def of_tracepoint(
        process: int | HeldProcess, tracepoint: Tracepoint, numbers: Sequence[int], stacks: bool
    ) -> Follower: ...
    def start(self) -> None: ...
    def next(self, seconds: float) -> PlaceHit | None: ...
    def wait(self, seconds: float) -> bool: ...
    def end(self) -> None: ...
    @property
    def finish(self) -> str: ...
    @property
    def is_unrestored(self) -> bool: ...
    @property
    def descriptor(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def stood(self) -> float: ...
    @property
    def held(self) -> float: ...
    @property
    def maps(self) -> tuple[bytes, bytes]: ...
    @property
    def started(self) -> int | None: ...
    @property
    def status(self) -> int | None: ...

class RegionTotals:
    arena: Final[int]
    start: Final[int]
    end: Final[int]
    states: Final[list[Tally]]

class RegionTrim:
    arena: Final[int]
    start: Final[int]
    end: Final[int]
    chunks: Final[int]
    released: Final[PageSum]
    top: Final[int]

class FreePiece:
    address: Final[int]
    size: Final[int]

class ArenaFit:
    arena: Final[int]
    best: Final[FreePiece | None]
    short: Final[list[FreePiece]]
    top: Final[int]

class BinTally:
    arena: Final[int]
    bin: Final[int]
    chunks: Final[int]
    bytes: Final[int]

class SizeCounts:
    size: Final[int]
    states: Final[list[int]]

class ListedChunk:
    address: Final[int]
    size: Final[int]
    state: Final[str]
    arena: Final[int]

class ChunkList:
    count: Final[int]
    bytes: Final[int]
    rows: Final[list[ListedChunk]]

class TakenList:
    entries: Final[int]
    end: Final[int]

class MappedRow:
    base: Final[int]
    chunk: Final[int]
    size: Final[int]

class FreeLists:
    chunks: Final[int]
    bytes: Final[int]
    whole: Final[int]

class RunningArena:
    next: Final[int]
    system: Final[int]
    peak: Final[int]
    top: Final[int | None]
    locked: Final[bool]
    noncontiguous: Final[bool]
    listed: Final[FreeLists | None]

class HeadRun:
    address: Final[int]
    pairs: Final[int]

class Chunks(BlockStore):
    def totals(self) -> list[RegionTotals]: ...
    def find_many(self, addresses: Sequence[int]) -> list[Block | None]: ...
    def arena_of(self, address: int) -> int | None: ...
    def holes(self, minimum: int) -> list[Hole]: ...
    @property
    def damage(self) -> list[Damage]: ...

class Mapped(BlockStore):
    def __init__(self, chunks: Sequence[Range]) -> None: ...

class Bins:
    def rows(self) -> list[BinTally]: ...
    def find_many(self, chunks: Sequence[int]) -> list[int | None]: ...
    @property
    def damage(self) -> list[Damage]: ...

class GraphNode:
    place: Final[str]
    address: Final[int]
    size: Final[int]
    type_address: Final[int]
    kind: Final[str]

class Edge:
    target: Final[int]
    strength: Final[int]

class Referrer:
    source: Final[int]
    target: Final[int]
    strength: Final[int]

class NodeBytes:
    id: Final[int]
    bytes: Final[int]

class LargestBlocks:
    count: Final[int]
    bytes: Final[int]
    rows: Final[list[NodeBytes]]

class RetainedByType:
    type_address: Final[int]
    count: Final[int]
    bytes: Final[int]
    retained: Final[int]

class Cause:
    group: Final[str]
    kind: Final[str]
    count: Final[int]
    type_address: Final[int]
    nodes: Final[list[int]]
    length: Final[int]

class LostGroup:
    cause: Final[int]
    is_head: Final[bool]
    type_address: Final[int]
    size: Final[int]
    count: Final[int]
    bytes: Final[int]
    buffers: Final[int]
    addresses: Final[list[int]]

class Unreachable:
    causes: Final[list[Cause]]
    rows: Final[list[LostGroup]]

class LostHead:
    address: Final[int]
    size: Final[int]
    type_address: Final[int]
    count: Final[int]
    retained: Final[int]
    in_circle: Final[bool]

class Heads:
    count: Final[int]
    rows: Final[list[LostHead]]

class BlockGroup:
    type_address: Final[int]
    kind: Final[str]
    size: Final[int]
    count: Final[int]
    bytes: Final[int]

class RetainedByGroup:
    group: Final[BlockGroup]
    retained: Final[int]

class LabelledGroup:
    label: Final[int]
    group: Final[BlockGroup]

class SharedType:
    type_address: Final[int]
    count: Final[int]
    bytes: Final[int]
    retained: Final[int]
    examples: Final[list[int]]

class SharedBlocks:
    owner: Final[int]
    bytes: Final[int]
    examples: Final[list[int]]

class OtherHolder:
    id: Final[int]
    target: Final[int]
    bytes: Final[int]

class AlsoHeld:
    bytes: Final[int]
    retained: Final[int]
    most: Final[int]
    others: Final[list[OtherHolder]]
    aliases: Final[list[tuple[int, int]]]

class Branch:
    id: Final[int]
    bytes: Final[int]
    way: Final[list[int]]

class KeptPart:
    type_address: Final[int]
    count: Final[int]
    bytes: Final[int]

class KeptNode:
    id: Final[int]
    above: Final[int]
    address: Final[int]
    type_address: Final[int]
    bytes: Final[int]
    count: Final[int]
    holder: Final[int | None]
    others: Final[int]
    parts: Final[list[KeptPart]]
    large: Final[list[tuple[int, int]]]

class KeptNodes:
    nodes: Final[list[KeptNode]]
    looked: Final[int]
    is_done: Final[bool]

class NodeColumns:
    addresses: Final[bytes]
    sizes: Final[bytes]
    types: Final[bytes]
    kinds: Final[bytes]
    edges: Final[bytes]

class EdgeColumns:
    next: Final[int]
    sources: Final[bytes]
    targets: Final[bytes]
    strengths: Final[bytes]

class NodesRetained: ...

class Graph:
    @property
    def nodes(self) -> int: ...
    @property
    def edge_count(self) -> int: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def unread(self) -> int: ...
    def not_examined(self) -> int: ...
    @property
    def blocks_end(self) -> int: ...
    def node_columns(self, start: int, most: int) -> NodeColumns: ...
    def edge_columns(self, start: int, end: int, least: int) -> EdgeColumns: ...
    def counted(self, edges: EdgeColumns) -> bytes: ...
    def addresses_of(self, numbers: bytes) -> bytes: ...
    def find(self, address: int) -> int | None: ...
    def node(self, id: int) -> GraphNode: ...
    def nodes_of(self, ids: Sequence[int]) -> list[GraphNode]: ...
    def edges(self, id: int) -> list[Edge]: ...
    def referrers(self, ids: set[int]) -> list[Referrer]: ...
    def chain(self, id: int, last: int | None = None) -> list[int]: ...
    def owners_of(self, ids: Sequence[int], progress: Report | None = None) -> list[int]: ...
    def phases(self, ids: Sequence[int]) -> bytes: ...
    def dominator_chain(self, id: int, ends: int | None = None) -> list[int]: ...
    def retained(self, ids: Sequence[int]) -> list[int]: ...
    def retained_of_all(self) -> NodesRetained: ...
    def top_retained(self, top: int | None, without: set[int], open: set[int], least: int) -> list[NodeBytes]: ...
    def innermost_equal(self, ids: Sequence[int]) -> list[int]: ...
    def retained_by_type(self, top: int | None) -> list[RetainedByType]: ...
    def retained_together(self, sets: Sequence[Sequence[int]]) -> list[int]: ...
    def largest(self, minimum: int, top: int | None) -> LargestBlocks: ...
    def objects_of(self, type_address: int) -> list[int]: ...
    def type_addresses(self) -> list[int]: ...
    def unreachable(self, most: int, facts: CollectorFacts) -> Unreachable: ...
    def hidden_words(
        self,
        inside: Sequence[tuple[int, int]],
        outside: Sequence[tuple[int, int]],
        files: Sequence[tuple[int, int]],
        least: int,
    ) -> list[tuple[int, int]]: ...
    def lost_heads(self, most: int) -> Heads: ...
    def kept_by(self, id: int) -> list[BlockGroup]: ...
    def retained_by_group(self, top: int | None) -> list[RetainedByGroup]: ...
    def shares(self, seeds: Sequence[tuple[int, int]], minimum: int) -> list[LabelledGroup]: ...
    def hanging(self, seeds: set[int], open: set[int], through: set[int]) -> SubtreeBytes: ...
    def divide(self, hanging: SubtreeBytes, seeds: set[int]) -> None: ...
    def branches(self, hanging: SubtreeBytes, minimum: int) -> list[Branch]: ...
    def homes(self, type_address: int, homes: set[int], cells: set[int]) -> list[tuple[int, int]]: ...
    def kept_by_several(self, without: set[int], large: int) -> list[SharedType]: ...
    def shared_blocks(self, without: set[int], least: int, top: int) -> list[SharedBlocks]: ...
    def also_held(self, members: set[int], most: int) -> AlsoHeld: ...
    def top_blocks(self, top: int | None, least: int) -> list[NodeBytes]: ...

class SubtreeBytes: ...

class LedTo:
    count: Final[int]
    rows: Final[list[Place]]

class ExtentArea:
    start: Final[int]
    end: Final[int]
    root: Final[int]

class ExtentPart:
    address: Final[int]
    size: Final[int]
    state: Final[str]
    list: Final[str | None]
    root: Final[int]
    arena: Final[int | None]

class BlockStore: ...

class ListedStore(BlockStore):
    def list_blocks(self, asked: BlockQuery) -> BlockList: ...
    def first_used(self, least: int, largest: int, most: int) -> list[Member]: ...
    def largest_used(self, least: int, most: int) -> list[Member]: ...
    @property
    def damage(self) -> list[Damage]: ...
    def holes(self, minimum: int) -> list[Hole]: ...

class ExtentStore(ListedStore):
    def areas(self) -> list[ExtentArea]: ...
    def classes(self, root: int | None = None) -> list[SizeClass]: ...
    def waiting(self) -> list[Range]: ...
    @property
    def run_count(self) -> int: ...
    def find(self, address: int) -> ExtentPart | None: ...
    def used_in_run(self, address: int) -> list[Member]: ...

class Heaps:
    def __init__(self, space: Space, stores: Sequence[BlockStore]) -> None: ...
    def led_to(self, start: int, end: int, top: int) -> LedTo: ...

class PlaceShare:
    label: Final[int]
    kind: Final[int]
    count: Final[int]
    bytes: Final[int]

class BlockChange:
    kind: Final[int]
    size: Final[int]
    kept: Final[int]
    new: Final[int]
    gone: Final[int]

class BlockChanges:
    rows: Final[list[BlockChange]]
    samples: Final[list[list[int]]]
    holders: Final[list[list[tuple[int, int]]]]

class BlockBatch:
    store: Final[int]
    first: Final[int]
    count: Final[int]
    addresses: Final[bytes]
    sizes: Final[bytes]
    kinds: Final[bytes]
    objects: Final[bytes]
    retained: Final[bytes]

class RetainedBytes: ...

class BlockBatches:
    def read(self) -> BlockBatch | None: ...

class BlockColumns:
    def __init__(self, counts: Sequence[int], columns: Sequence[bytes], types: int) -> None: ...
    def batches(self, most: int, objects: bool = False, retained: RetainedBytes | None = None) -> BlockBatches: ...
    def retained(self, graph: Graph, by_node: NodesRetained) -> RetainedBytes: ...
    def held(self, graph: Graph, among: Sequence[int]) -> BlockColumns: ...
    def shares(self, ranges: Sequence[LabelledRange]) -> list[PlaceShare]: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def types(self) -> list[int]: ...
    @property
    def addresses(self) -> bytes: ...
    @property
    def far(self) -> bytes: ...
    @property
    def sizes(self) -> bytes: ...
    @property
    def large(self) -> bytes: ...
    @property
    def kinds(self) -> bytes: ...
    @property
    def holders(self) -> bytes: ...
    @property
    def offsets(self) -> bytes: ...

class FoundTree:
    address: Final[int]
    bits: Final[int]

class JemallocFit:
    extents: Final[int]
    fit: Final[int]

class JemallocArenaUse:
    root: Final[int]
    arena: Final[int]
    active: Final[int]
    dirty: Final[int]
    muzzy: Final[int]
    retained: Final[int]
    used: Final[int]
    cached: Final[int]
    own: Final[int]

class JemallocClassUse:
    root: Final[int]
    arena: Final[int]
    size: Final[int]
    slabs: Final[int]
    used: Final[int]
    cached: Final[int]
    own: Final[int]
    free: Final[int]

class InMotion:
    extents: Final[int]
    lists: Final[int]
    both: Final[int]
    astray: Final[int]
    bins: Final[int]

class SampledStack:
    root: Final[int]
    frames: Final[list[int]]
    blocks: Final[int]
    bytes: Final[int]
    likely_blocks: Final[int | None]
    likely_bytes: Final[int | None]
    first: Final[int]

class Jemalloc(ExtentStore):
    def class_use(self) -> list[JemallocClassUse]: ...
    def packing(self, pages: Pages | None, arenas: int | None = None) -> Packing: ...
    def samples(self, space: Space) -> list[SampledStack]: ...
    def arena_use(self) -> list[JemallocArenaUse]: ...
    @property
    def caches(self) -> list[int]: ...
    @property
    def astray(self) -> list[int]: ...
    @property
    def moving(self) -> InMotion: ...
    def unused(self) -> tuple[list[Range], list[Range]]: ...
    @property
    def unfit(self) -> list[Damage]: ...
    @property
    def miscounted(self) -> list[Damage]: ...
    @property
    def unfinished(self) -> list[Damage]: ...

class FoundContext:
    address: Final[int]
    groups: Final[int]
    fit: Final[int]

class Misfit:
    damage: Final[Damage]
    transient: Final[bool]

class ClassUsage:
    size: Final[int]
    walked: Final[int]
    said: Final[int]

class AskedOfClass:
    size: Final[int]
    used: Final[int]
    asked: Final[int]

class SlotBlock:
    address: Final[int]
    size: Final[int]
    end: Final[int]
    state: Final[str]
    list: Final[str | None]

class Mallocng(ListedStore):
    def regions(self) -> list[Range]: ...
    def stretches(self) -> list[Range]: ...
    def areas(self) -> list[Range]: ...
    @property
    def moving(self) -> int: ...
    def classes(self) -> list[SizeClass]: ...
    def usage(self) -> list[ClassUsage]: ...
    def asked_by_class(self) -> list[AskedOfClass]: ...
    def empty(self) -> list[Range]: ...
    def find(self, address: int) -> SlotBlock | None: ...
    def own_part(self, address: int) -> str | None: ...
    def used_with(self, address: int) -> list[Member]: ...
    @property
    def misfits(self) -> list[Misfit]: ...

class PageRun:
    start: Final[int]
    end: Final[int]
    state: Final[int]

class Residency:
    resident: Final[int]
    swapped: Final[int]

class PointerCount:
    number: Final[int]
    place: Final[int]
    words: Final[int]

class Pages:
    @staticmethod
    def from_pagemap(machine: Machine, path: str, ranges: Sequence[Range], scan: bool = True) -> Pages: ...
    @staticmethod
    def from_entries(machine: Machine, parts: Sequence[tuple[int, bytes]]) -> Pages: ...
    @staticmethod
    def from_runs(machine: Machine, runs: Sequence[StateRun]) -> Pages: ...
    def count(self, start: int, end: int) -> Residency: ...
    def released(self, start: int, end: int) -> PageSum: ...
    @property
    def knows_huge(self) -> bool: ...
    def runs(self, start: int, end: int) -> list[PageRun]: ...

class Room:
    def __init__(self, size: int) -> None: ...

class Space:
    @staticmethod
    def for_process(
        machine: Machine,
        process: int | HeldProcess,
        mappings: Sequence[MappingRow],
        pages: Pages | None,
        files: Sequence[str],
        shared: bool,
        stop: Stop | None = None,
        memory: int | None = None,
    ) -> Space: ...
    @staticmethod
    def for_core(machine: Machine, segments: Sequence[SegmentRow], files: Sequence[str]) -> Space: ...
    @staticmethod
    def for_remote(machine: Machine, segments: Sequence[Range], read: ReadMemory) -> Space: ...
    def read(self, address: int, size: int) -> bytes: ...
    def read_available(self, address: int, size: int) -> bytes: ...
    def next_backed(self, address: int) -> int | None: ...
    def word(self, address: int) -> int: ...
    def u32(self, address: int) -> int: ...
    def cstring(self, address: int, limit: int = ...) -> bytes: ...
    def contains(self, address: int, size: int) -> bool: ...
    def capture(self, ranges: Sequence[Range], room: Room, shared: Sequence[Range], mem: str) -> bool: ...
    @property
    def left_out(self) -> int: ...
    def as_it_runs(self) -> Space | None: ...
    @property
    def is_shared_lost(self) -> bool: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def bytes_read(self) -> int: ...

class OwnerSum:
    owner: Final[int]
    bytes: Final[int]
    resident: Final[int]
    swapped: Final[int]
    zero: Final[int]
    huge: Final[int]
    pages: Final[int]
    whole: Final[int]
    whole_huge: Final[int]

class Pin:
    start: Final[int]
    end: Final[int]
    blocks: Final[int]
    bytes: Final[int]
    freed: Final[int]

class PinTotals:
    groups: Final[int]
    blocks: Final[int]
    bytes: Final[int]
    freed: Final[int]

class Pins:
    rows: Final[list[Pin]]
    totals: Final[PinTotals]

class CountsOf:
    type_address: Final[int]
    objects: Final[int]
    pages: Final[int]
    counts_alone: Final[int]
    restored: Final[int]
    restored_tracked: Final[int]

class WrittenPages:
    restored: Final[int]
    restored_counts: Final[int]
    restored_tracked: Final[int]
    collector: Final[int]
    counts: Final[int]
    both: Final[int]
    other: Final[int]
    only_here: Final[int]
    shared: Final[int]
    quiet_own: Final[int]
    quiet_shared: Final[int]
    types: Final[list[CountsOf]]

class CopyRemains:
    buffer: Final[int]
    base: Final[int]
    start: Final[int]
    end: Final[int]

class Sweep:
    def __init__(
        self, machine: Machine, pages: Pages | None, owners: int, cuts: Sequence[int] = ..., kept: Sequence[int] = ...
    ) -> None: ...
    def huge_ranges(self) -> list[Range]: ...
    def set_lost(self, ranges: Sequence[Range], owner: int) -> None: ...
    def add(self, start: int, end: int, owner: int) -> None: ...
    def add_blocks(self, space: Space, store: BlockStore, start: int, owners: dict[str, int]) -> int: ...
    def finish(self) -> list[list[OwnerSum]]: ...

class ComparedPages: ...

class MimallocForm:
    name: Final[str]
    entry: Final[int]
    cookie: Final[int]
    tagged: Final[bool]
    only_pythons: Final[bool]
    has_map: Final[bool]

class Segment:
    start: Final[int]
    end: Final[int]
    thread: Final[int]
    root: Final[int]

class FoundMap:
    address: Final[int]
    map: Final[int]
    count: Final[int]

class FormFit:
    entries: Final[int]
    placed: Final[int]
    pages: Final[int]
    fit: Final[int]
    padded: Final[int]

class FoundSegment:
    address: Final[int]
    cookie: Final[int]
    used: Final[int]
    tiles: Final[bool]

class TaggedHeap:
    tag: Final[int]
    pages: Final[int]
    used: Final[int]
    bytes: Final[int]
    abandoned: Final[int]

class PageBlock:
    address: Final[int]
    size: Final[int]
    state: Final[str]
    list: Final[str | None]
    asked: Final[int | None]
    root: Final[int]
    arena: Final[int | None]

class HeapUse:
    root: Final[int]
    number: Final[int]
    heap: Final[int]
    pages: Final[int]
    active: Final[int]
    empty: Final[int]
    used: Final[int]

class CountMismatch:
    damage: Final[Damage]
    passing: Final[bool]

class Mimalloc(ListedStore):
    def segments(self) -> list[Segment]: ...
    def classes(self, root: int | None = None) -> list[SizeClass]: ...
    def heap_use(self) -> list[HeapUse]: ...
    def heaps(self) -> list[TaggedHeap]: ...
    @property
    def free_spans(self) -> int: ...
    def empty_spans(self) -> list[Range]: ...
    @property
    def page_count(self) -> int: ...
    def find(self, space: Space, address: int) -> PageBlock | None: ...
    def asked_by_class(self, space: Space, root: int | None = None) -> list[AskedOfClass]: ...
    def packing(self, pages: Pages | None) -> Packing: ...
    def used_in_page(self, address: int) -> list[Member]: ...
    @property
    def miscounted(self) -> list[CountMismatch]: ...

class OwnedBuffers:
    role: Final[int]
    count: Final[int]
    bytes: Final[int]

class TypeRow:
    address: Final[int]
    flags: Final[int]
    live: Final[Tally]
    idle: Final[Tally]
    owned: Final[list[OwnedBuffers]]

class StoreRow:
    name: Final[str]
    used: Final[Tally]
    unclassified: Final[Tally]

class BlockOwner:
    block: Final[int]
    address: Final[int]
    type_address: Final[int]
    role: Final[int]

class ObjectAt:
    address: Final[int]
    type_address: Final[int]
    alive: Final[bool]

class Instance:
    address: Final[int]
    type_address: Final[int]
    size: Final[int]
    buffers: Final[int]

class InstanceList:
    count: Final[int]
    bytes: Final[int]
    buffers: Final[int]
    rows: Final[list[Instance]]

class AskedSize:
    block_size: Final[int]
    objects: Final[int]
    bytes: Final[int]

class Slack:
    containers: Final[int]
    small: Final[int]
    pages: Final[int]
    most: Final[int]
    address: Final[int]

class Estimate:
    kind: Final[int]
    live: Final[int]
    bytes: Final[int]
    idle: Final[int]
    idle_bytes: Final[int]

class TracebackSum:
    traceback: Final[int]
    count: Final[int]
    bytes: Final[int]

class Traces:
    rows: Final[list[TracebackSum]]
    entries: Final[int]

class EqualGroup:
    hash: Final[int]
    kind: Final[int]
    count: Final[int]
    bytes: Final[int]
    largest: Final[int]
    address: Final[int]

class KindSum:
    kind: Final[int]
    objects: Final[int]
    bytes: Final[int]
    values: Final[int]
    copies: Final[int]
    saved: Final[int]

class EqualValues:
    rows: Final[list[EqualGroup]]
    sums: Final[list[KindSum]]
    count: Final[int]

class EqualObject:
    hash: Final[int]
    address: Final[int]
    size: Final[int]

class ContainerFill:
    count: Final[int]
    empty: Final[int]
    shared: Final[int]
    used: Final[int]
    room: Final[int]
    tenths: Final[list[int]]

class KeyTally:
    key: Final[int]
    count: Final[int]
    bytes: Final[int]

class DistanceVotes:
    flags: Final[int]
    distance: Final[int]
    blocks: Final[int]

class Census:
    rows: Final[list[TypeRow]]
    stores: Final[list[StoreRow]]
    owners: Final[list[BlockOwner]]
    roots: Final[list[Tally]]
    unknown: Final[list[Place]]
    contested: Final[list[int]]
    idle_slabs: Final[Tally]
    settling: Final[float]
    following: Final[float]

class OldChunk:
    address: Final[int]
    size: Final[int]
    end: Final[int]
    state: Final[str]

class OldSize:
    size: Final[int]
    used: Final[int]
    free: Final[int]

class Oldmalloc(ListedStore):
    def regions(self) -> list[Range]: ...
    def sizes(self) -> list[OldSize]: ...
    def find(self, address: int) -> OldChunk | None: ...
    @property
    def unbinned(self) -> list[Damage]: ...

class Unpacker:
    def __init__(self, path: str, kind: str) -> None: ...
    @property
    def position(self) -> int: ...
    def read(self, size: int) -> bytes: ...

class PackedSize:
    root: Final[int]
    size: Final[int]
    slabs: Final[int]
    live: Final[int]
    free: Final[int]
    resident: Final[int]
    spare: Final[int]
    moved: Final[int]
    freed: Final[int]

class Packing:
    sizes: Final[list[PackedSize]]
    going: Final[list[Range]]

class ThreadState:
    tid: Final[int]
    thread_pointer: Final[int]
    stack_pointer: Final[int]
    program_counter: Final[int]
    general: Final[list[int]]

class ProcessMemory:
    rss: Final[int]
    pss: Final[int]
    proportional: Final[int]
    private: Final[int]
    shared: Final[int]
    private_huge: Final[int]
    shared_huge: Final[int]
    anonymous: Final[int]
    lazy: Final[int]
    swap: Final[int]
    swap_share: Final[int | None]
    fingerprint: Final[int]

class ProcessAccount:
    pid: Final[int]
    parent: Final[int]
    name: Final[bytes]
    exe: Final[bytes]
    command: Final[bytes]
    memory: Final[ProcessMemory | None]
    error: Final[int]

class HeldFile:
    descriptor: Final[int]
    path: Final[str]
    device: Final[int]
    inode: Final[int]
    mode: Final[int]
    size: Final[int]
    kind: Final[int]

class CallResult:
    end: Final[str]
    value: Final[int]
    text: Final[bytes]
    limit: Final[float]

class ThreadLook:
    registers: Final[list[int]]
    shadow_stack: Final[bool]
    dispatched: Final[bool]
    sequence: Final[int]
    entering: Final[bool]
    restartable: Final[bool]
    vector_size: Final[int]

class Stop:
    def __init__(self, process: int | HeldProcess, limit: float | None = None) -> None: ...
    @property
    def threads(self) -> list[ThreadState]: ...
    @property
    def unstopped(self) -> list[int]: ...
    def look(self, tid: int) -> ThreadLook: ...
    def call(self, tid: int, plan: CallPlan) -> CallResult: ...
    def release(self) -> None: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def expired(self) -> bool: ...
    @property
    def missed(self) -> int: ...
    @property
    def mended(self) -> int: ...

class Descriptor:
    def __init__(self, number: int) -> None: ...
    @property
    def number(self) -> int: ...

class OwnCopy:
    def __init__(self, words: Sequence[bytes], environment: Sequence[bytes]) -> None: ...
    @property
    def pid(self) -> int: ...
    @property
    def paused(self) -> float: ...
    def wait(self, limit: float | None = None) -> tuple[int, bytes] | None: ...

class Frozen:
    def __init__(self, process: int | HeldProcess, limit: float | None = None) -> None: ...
    @property
    def pid(self) -> int: ...
    @property
    def descriptor(self) -> int: ...
    @property
    def mended(self) -> int: ...
    @property
    def threads(self) -> list[ThreadState]: ...
    @property
    def unstopped(self) -> list[int]: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def expired(self) -> bool: ...
    @property
    def missed(self) -> int: ...
    def let_go(self) -> None: ...
    def end(self) -> bool: ...
    @property
    def left(self) -> int | None: ...

class ArenaUse:
    number: Final[int]
    used: Final[int]
    bytes: Final[int]

class Share:
    block_size: Final[int]
    pools: Final[int]
    used: Final[int]

class OccupiedArena:
    number: Final[int]
    address: Final[int]
    used_bytes: Final[int]
    shares: Final[list[Share]]

class Spread:
    block_size: Final[int]
    arenas: Final[int]
    alone: Final[int]
    blocks_alone: Final[int]

class Fill:
    percent: Final[int]
    arenas: Final[int]
    used_bytes: Final[int]

class Occupancy:
    spread: Final[list[Spread]]
    fill: Final[list[Fill]]
    emptiest: Final[list[OccupiedArena]]

class ArenaTable:
    word: Final[int]
    table: Final[int]

class Pools(BlockStore):
    def classes(self) -> list[SizeClass]: ...
    def arena_ranges(self) -> list[Range]: ...
    def used_of_arenas(self) -> list[ArenaUse]: ...
    @property
    def pool_count(self) -> int: ...
    def find(self, space: Space, address: int) -> Block | None: ...
    @property
    def damage(self) -> list[Damage]: ...
    def verify(self, space: Space, most: int) -> list[Damage]: ...
    def holes(self, space: Space, minimum: int) -> list[Hole]: ...

class Damage:
    address: Final[int]
    what: Final[str]
    expected: Final[str]
    found: Final[str]
    is_absent: Final[bool]

class Tally:
    count: Final[int]
    bytes: Final[int]

class Block:
    address: Final[int]
    size: Final[int]
    state: Final[str]

class Hole:
    start: Final[int]
    end: Final[int]
    address: Final[int]
    arena: Final[int | None]
    before: Final[Block | None]
    after: Final[Block | None]

class SizeClass:
    block_size: Final[int]
    groups: Final[int]
    used: Final[int]
    free: Final[int]

class PageSum:
    whole: Final[int]
    resident: Final[int]
    swapped: Final[int]

class Member:
    address: Final[int]
    size: Final[int]
    used: Final[bool]

class BlockRow:
    address: Final[int]
    size: Final[int]
    arena: Final[int | None]

class BlockList:
    count: Final[int]
    bytes: Final[int]
    rows: Final[list[BlockRow]]

class Unwound:
    counters: Final[list[int]]
    pointers: Final[list[int]]
    starts: Final[list[int]]
    cut: Final[str]
    unknown: Final[int | None]
    saved: Final[list[tuple[int, int, int]]]
    taken: Final[int]

class Unwinder:
    def __init__(self, modules: Sequence[Module], room: int) -> None: ...
    def renew(self, modules: Sequence[Module], room: int) -> None: ...
    def unwind(self, tables: Space, space: Space, registers: Sequence[int], stack: bytes | None = None) -> Unwound: ...

class KindRow:
    family: Final[str]
    class_name: Final[str]
    count: Final[int]
    bytes: Final[int]

class Capacity:
    kind: Final[int]
    count: Final[int]
    capacity: Final[int]
    used: Final[int]
    small: Final[int]
    pages: Final[int]
    most: Final[int]
    address: Final[int]

class Structures:
    def rows(self) -> list[KindRow]: ...
    @property
    def left_out(self) -> bool: ...
    def all(self) -> Tally: ...
    def kinds_at(self, addresses: Sequence[int]) -> list[int]: ...
    def blocks_of(self, kinds: set[int], most: int) -> list[Place]: ...
    def capacities(self, pages: Pages | None = None) -> list[Capacity]: ...
    def chunks_of(self, kinds: set[int], wanted: ChunkFilter) -> list[ListedChunk]: ...

class SymbolTable:
    def __init__(self, tables: Sequence[tuple[bytes, bytes]], functions: bool) -> None: ...
    def find(self, name: str) -> tuple[int, int] | None: ...
    def at(self, address: int) -> list[SymbolRow]: ...
    def around(self, address: int) -> list[SymbolRow]: ...
    def starting_in(self, low: int, high: int, least: int, most: int) -> list[SymbolRow]: ...
    def function(self, address: int) -> int | None: ...
    def plainest(self, start: int) -> str | None: ...
    def gap(self, low: int, high: int) -> tuple[int | None, int | None]: ...
    def thread_local(self) -> list[SymbolRow]: ...

class LineBudget:
    def __init__(self) -> None: ...

class SourceLines:
    def __init__(self, sections: dict[str, bytes], budget: LineBudget) -> None: ...
    def find(self, address: int) -> list[SourceLine]: ...

class FoundSpanMap:
    address: Final[int]
    page: Final[int]

class TcmallocFit:
    spans: Final[int]
    fit: Final[int]

class TcmallocUse:
    used: Final[int]
    listed: Final[int]
    transfer: Final[int]
    cached: Final[int]
    waste: Final[int]
    free: Final[int]
    returned: Final[int]
    metadata: Final[int]

class TcmallocSizeUse:
    root: Final[int]
    size: Final[int]
    spans: Final[int]
    used: Final[int]
    listed: Final[int]
    transfer: Final[int]
    cached: Final[int]

class TcmallocCache:
    root: Final[int]
    address: Final[int]
    blocks: Final[int]
    bytes: Final[int]

class TcmallocInMotion:
    locked: Final[int]
    chains: Final[int]
    astray: Final[int]

class Tcmalloc(ExtentStore):
    def sizes(self) -> list[TcmallocSizeUse]: ...
    def packing(self, pages: Pages | None) -> Packing: ...
    def sums(self) -> list[TcmallocUse]: ...
    @property
    def holding(self) -> list[TcmallocCache]: ...
    @property
    def caches(self) -> list[int | None]: ...
    @property
    def moving(self) -> TcmallocInMotion: ...
    def unused(self) -> list[Range]: ...
    @property
    def miscounted(self) -> list[Damage]: ...
    @property
    def broken(self) -> list[Damage]: ...

def call_stats(path: str, frames: Frames, room: int, progress: Report | None = None) -> CallStats: ...
def hold_threads() -> None: ...
def live_stacks(
    path: str,
    frames: Frames,
    room: int,
    mean: int,
    moments: Sequence[int],
    rest: Sequence[bytes] = ...,
    wanted: Sequence[int] = ...,
    asked: Sequence[int] = ...,
    progress: Report | None = None,
) -> LiveStacks: ...
def place_of_stage(stage: int, is_current: bool) -> tuple[int, int]: ...
def pack_stage(stage: bytes) -> tuple[bytes, int]: ...
def waiting_stage(header: bytes) -> bytes: ...
def plan_calls(
    path: str,
    frames: Frames,
    room: int,
    plan: str | None = None,
    most: int = ...,
    mappings: bool = False,
    parents: Sequence[tuple[Frames, int]] = ...,
    progress: Report | None = None,
) -> ReplayPlan: ...
def find_call_sites(
    space: Space, texts: Sequence[Text], modules: Sequence[Module], room: int, numbers: Sequence[int]
) -> list[CallSite]: ...
def plan_patches(places: Sequence[CodePlace], caves: Sequence[Cave], signal: int) -> list[CodePatch]: ...
def find_left_patches(cave: Cave) -> list[LeftPatch]: ...
def restore_left_patches(process: int | HeldProcess, memory: int, left: Sequence[LeftStub]) -> bool: ...
def registers_before_trap(registers: Sequence[int], frame: bytes, address: int) -> list[int]: ...
def return_from_trap(tid: int, address: int) -> None: ...
def find_tracepoint() -> Tracepoint: ...
def walk_chunks(
    space: Space,
    stretches: Sequence[Stretch],
    caches: Sequence[CacheList],
    safe_linking: bool,
    collects: bool,
    progress: Report | None = None,
) -> tuple[Chunks, list[TakenList]]: ...
def follow_bins(space: Space, chunks: Chunks, heads: Sequence[int], progress: Report | None = None) -> Bins: ...
def least_sizes() -> list[int]: ...
def count_sizes(chunks: Chunks) -> list[SizeCounts]: ...
def list_chunks(chunks: Chunks, wanted: ChunkFilter, order: str, top: int | None = None) -> ChunkList: ...
def find_fits(chunks: Chunks, need: int, with_fast: bool, most: int) -> list[ArenaFit]: ...
def sum_lists(space: Space, chunks: Chunks, lists: Sequence[CacheList], safe_linking: bool) -> list[Tally]: ...
def trim_chunks(machine: Machine, chunks: Chunks, pages: Pages | None, kept: Sequence[Range]) -> list[RegionTrim]: ...
def look_at_arena(space: Space, address: int, layout: StateLayout, most: int) -> RunningArena | None: ...
def find_list_heads(space: Space, start: int, end: int, least: int) -> list[HeadRun]: ...
def find_mmapped(space: Space, ranges: Sequence[Range], style: MmappedStyle) -> list[MappedRow]: ...
def find_extents(space: Space, ranges: Sequence[Range], top: int, foreign: int) -> list[Range]: ...
def find_fenced(space: Space, ranges: Sequence[Range], size: int, top: int) -> list[Range]: ...
def held_chunks(chunks: Chunks, start: int, end: int, most: int) -> list[Member]: ...
def static_types(heaps: Heaps, layout: TypeLayout) -> list[int]: ...
def draw_graph(
    heaps: Heaps,
    layout: TypeLayout,
    graph: GraphLayout,
    statics: Sequence[int],
    roots: Sequence[Root],
    linked: Sequence[int],
    structures: Structures | None = None,
    progress: Report | None = None,
    is_partial: bool = False,
) -> Graph: ...
def find_kept(
    heaps: Heaps,
    layout: TypeLayout,
    graph: GraphLayout,
    roots: Sequence[Root],
    most: int,
    seconds: float,
    minimum: int,
    progress: Report | None = None,
) -> KeptNodes: ...
def draw_blocks(
    heaps: Heaps,
    tables: Tables,
    roots: Sequence[Root],
    linked: Sequence[int],
    structures: Structures | None = None,
    progress: Report | None = None,
    is_partial: bool = False,
    hidden: Sequence[tuple[int, int]] = ...,
    texts: Sequence[tuple[int, int]] = ...,
) -> Graph: ...
def list_blocks(heaps: Heaps, layout: TypeLayout | None = None, progress: Report | None = None) -> BlockColumns: ...
def compare_blocks(
    before: BlockColumns, old_types: Sequence[int], after: BlockColumns, new_types: Sequence[int], most: int
) -> BlockChanges: ...
def jemalloc_forms() -> list[str]: ...
def find_trees(space: Space, data: Sequence[Range], anonymous: Sequence[Range]) -> list[FoundTree]: ...
def jemalloc_fit(space: Space, name: str, root: int, bits: int) -> JemallocFit: ...
def read_jemalloc(
    space: Space,
    anonymous: Sequence[Range],
    roots: Sequence[tuple[str, int, int, Sequence[Range]]],
    storage: Sequence[Range],
) -> Jemalloc: ...
def read_mallocng(space: Space, context: int) -> Mallocng: ...
def find_contexts(space: Space, ranges: Sequence[Range]) -> list[FoundContext]: ...
def data_extents(path: str, most: int) -> list[Range]: ...
def find_initial(space: Space, start: int, initial: bytes, ranges: Sequence[Range]) -> list[int]: ...
def find_places(raw: bytes, tests: Sequence[WordTest]) -> list[int]: ...
def words_at(space: Space, addresses: Sequence[int]) -> list[int | None]: ...
def find_led_back(
    space: Space, raw: bytes, below: int, apart: Range, first: int, back: int, place: int | None
) -> list[int]: ...
def find_pointer(space: Space, start: int, end: int, low: int, high: int) -> int | None: ...
def find_pointer_runs(space: Space, ranges: Sequence[Range], low: int, high: int, most: int) -> list[Range]: ...
def count_pointers(space: Space, sources: Sequence[OwnedRange], targets: Sequence[Range]) -> list[PointerCount]: ...
def pins(
    machine: Machine,
    store: BlockStore,
    pages: Pages | None,
    kept: Sequence[Range],
    trimmed: Sequence[int],
    least: int,
    most: int,
) -> Pins: ...
def look_at(space: Space, blocks: Sequence[Place], mapped: Sequence[Range]) -> list[str]: ...
def find_copies(space: Space, pages: Pages, buffers: Sequence[Range], holes: Sequence[Range]) -> list[CopyRemains]: ...
def read_once(space: Space, ranges: Sequence[Range], window: int = ...) -> int: ...
def zero_pages(space: Space, ranges: Sequence[Range]) -> int: ...
def compare_pages(
    space: Space, other: Space, other_pages: Pages, path: str, ranges: Sequence[Range]
) -> ComparedPages: ...
def written_pages(
    compared: ComparedPages,
    heaps: Heaps,
    layout: TypeLayout | None,
    statics: Sequence[Place],
    progress: Report | None = None,
) -> WrittenPages: ...
def value_marks(
    heaps: Heaps,
    layout: TypeLayout,
    types: set[int],
    path: str,
    ranges: Sequence[Range],
    progress: Report | None = None,
) -> bytes: ...
def page_marks(space: Space, path: str, ranges: Sequence[Range], shared: bool) -> bytes: ...
def mimalloc_forms() -> list[MimallocForm]: ...
def read_mimalloc(space: Space, roots: Sequence[tuple[str, bool, Sequence[int]]]) -> Mimalloc: ...
def find_segments(space: Space, ranges: Sequence[Range], name: str) -> list[FoundSegment]: ...
def find_page_maps(space: Space, ranges: Sequence[Range]) -> list[FoundMap]: ...
def mimalloc_fit(space: Space, name: str, places: Sequence[int]) -> FormFit: ...
def mimalloc_owners(space: Space, name: str, places: Sequence[int]) -> list[int]: ...
def page_map_tables(space: Space, map: int) -> list[Range]: ...
def find_claimed(
    heaps: Heaps,
    layout: TypeLayout,
    measures: Measures,
    roots: Sequence[Sequence[Range]],
    progress: Report | None = None,
) -> Claimed: ...
def take_census(
    heaps: Heaps,
    layout: TypeLayout,
    question: CensusRequest,
    graph: Graph | None = None,
    progress: Report | None = None,
) -> Census: ...
def objects_in(heaps: Heaps, layout: TypeLayout, blocks: Sequence[Spot]) -> list[ObjectAt | None]: ...
def list_objects(
    heaps: Heaps, layout: TypeLayout, kinds: set[int], wanted: ChunkFilter, progress: Report | None = None
) -> list[ListedChunk]: ...
def list_instances(
    heaps: Heaps,
    layout: TypeLayout,
    kinds: dict[int, int],
    without: set[int],
    order: str,
    top: int | None = None,
    progress: Report | None = None,
) -> InstanceList: ...
def asked_sizes(
    heaps: Heaps, layout: TypeLayout, sizing: SizeFields, without: set[int], progress: Report | None = None
) -> list[AskedSize]: ...
def list_slack(
    heaps: Heaps,
    layout: TypeLayout,
    pages: Pages | None,
    growing: Sequence[GrowthRule],
    tables: Sequence[TableRule],
    sizes: Sequence[Sizes],
    most: int | None = None,
) -> list[Slack]: ...
def estimate_types(heaps: Heaps, layout: TypeLayout, most: int) -> list[Estimate]: ...
def vote_distances(heaps: Heaps, layout: TypeLayout, mask: int, most: int) -> list[DistanceVotes]: ...
def sample_types(heaps: Heaps, layout: TypeLayout, most: int) -> dict[int, int]: ...
def count_traces(heaps: Heaps, tables: Sequence[TraceTable], progress: Report | None = None) -> Traces: ...
def equal_values(
    heaps: Heaps,
    layout: TypeLayout,
    values: Values,
    types: set[int],
    without: set[int],
    apart: Sequence[tuple[int, int, int]],
    least: int,
    by_bytes: bool,
    slices: int,
    top: int,
    progress: Report | None = None,
) -> EqualValues: ...
def equal_objects(
    heaps: Heaps,
    layout: TypeLayout,
    values: Values,
    types: set[int],
    without: set[int],
    apart: Sequence[tuple[int, int, int]],
    hashes: set[int],
    most: int,
    progress: Report | None = None,
) -> list[EqualObject]: ...
def value_hashes(
    heaps: Heaps, layout: TypeLayout, values: Values, addresses: Sequence[int], progress: Report | None = None
) -> list[int | None]: ...
def tally_objects(
    heaps: Heaps, layout: TypeLayout, kinds: dict[int, int], without: set[int], progress: Report | None = None
) -> list[KeyTally]: ...
def count_fill(
    heaps: Heaps,
    layout: TypeLayout,
    kinds: dict[int, int],
    growing: Sequence[GrowthRule],
    tables: Sequence[TableRule],
    without: set[int],
    progress: Report | None = None,
) -> list[ContainerFill]: ...
def read_oldmalloc(space: Space, mal: int, anonymous: Sequence[Range], data: Sequence[Range]) -> Oldmalloc: ...
def find_bins(space: Space, ranges: Sequence[Range]) -> list[int]: ...
def filesystem_of(descriptor: int) -> int: ...
def end_with_parent(parent: int, signal: int) -> bool: ...
def has_sharer(pid: int) -> bool: ...
def have_one_memory(pids: Sequence[int]) -> bool: ...
def look_at_thread(tid: int) -> ThreadLook: ...
def call_in_thread(tid: int, plan: CallPlan) -> CallResult: ...
def end_where_deaf(deaf: bytes, blocked: bytes) -> None: ...
def read_patiently(path: str, limit: int) -> bytes: ...
def hold_known(folder: int, name: str) -> int: ...
def watched_by_epolls(folder: str, numbers: Sequence[int]) -> tuple[list[int], bool]: ...
def read_at_patiently(path: str, offset: int, size: int) -> bytes: ...
def read_link_patiently(path: str) -> str: ...
def open_patiently(path: str, writable: bool) -> int: ...
def hold_file(path: str, follows: bool = True) -> HeldFile: ...
def walk_to_file(root: str, path: str, mounts: set[int], checks_root: bool) -> HeldFile: ...
def reopen_file(held: int) -> int: ...
def process_accounts(root: str, pids: Sequence[int] | None = None) -> list[ProcessAccount]: ...
def read_pools(space: Space, arenas: Sequence[ArenaRow], pool_size: int, alignment: int) -> Pools: ...
def occupancy(pools: Pools, percents: Sequence[int], most: int) -> Occupancy: ...
def used_blocks(space: Space, pools: Pools, address: int, most: int) -> list[Member]: ...
def find_list_ends(space: Space, ranges: Sequence[Range], pool_size: int, alignment: int) -> dict[int, int]: ...
def find_arena_tables(
    space: Space, start: int, end: int, samples: Sequence[PoolSample], homes: Sequence[Range], largest_arena: int
) -> list[ArenaTable]: ...
def unwind_stacks(
    space: Space, modules: Sequence[Module], room: int, effort: int, threads: Sequence[Sequence[int]]
) -> list[Unwound]: ...
def demangle(symbol: str) -> str | None: ...
def mentions(space: Space, start: int, end: int, low: int, high: int) -> bool: ...
def find_structures(
    heaps: Heaps,
    objects: Sequence[Range],
    code: Sequence[Range],
    statics: Sequence[Range],
    stacks: Sequence[Range],
    libraries: Libraries,
    named: Sequence[tuple[int, str]],
    progress: Report | None = None,
) -> Structures: ...
def classes_at(space: Space, objects: Sequence[Range], addresses: Sequence[int]) -> list[str | None]: ...
def blocks_with(heaps: Heaps, words: Sequence[int], progress: Report | None = None) -> list[tuple[int, int, int]]: ...
def find_mapped(heaps: Heaps, ranges: Sequence[Range], page: int, progress: Report | None = None) -> list[MappedBy]: ...
def find_span_maps(space: Space, data: Sequence[Range], anonymous: Sequence[Range]) -> list[FoundSpanMap]: ...
def tcmalloc_fit(space: Space, address: int, page: int, data: Sequence[Range]) -> TcmallocFit: ...
def read_tcmalloc(
    space: Space, anonymous: Sequence[Range], roots: Sequence[tuple[int, int, Sequence[Range]]]
) -> Tcmalloc: ...
