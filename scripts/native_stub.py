"""Compare gdbheap/_native.pyi with the sources in native/binding, or with --write write it.

The sources are read as text. They use little of Rust, and anything unknown is an error: a wrong stub is worse than
none. ``tests/test_native_stub.py`` also compares the stub with the built module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
BINDING = ROOT / "native" / "binding" / "src"
# The crates whose types the binding returns.
SOURCES = [ROOT / "native" / crate / "src" for crate in ("access", "core")]
STUB = ROOT / "gdbheap" / "_native.pyi"
WIDTH = 120
HEAD = '''"""Types of the native module, written by scripts/native_stub.py; the docstrings are in native/binding/src."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gdbheap.machines.machine import Machine

class HeldProcess(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def descriptor(self) -> int: ...

'''
# Types that Rust only knows as callable objects.
CALLABLES = {"Report": "Callable[[int, int], object]", "ReadMemory": "Callable[[int, int], bytes]"}
NAMES = {
    **dict.fromkeys(("u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "isize", "Address"), "int"),
    **dict.fromkeys(("String", "OsString", "str", "Operand", "Test", "BlockOrder"), "str"),
    "f64": "float",
    "bool": "bool",
    **dict.fromkeys(("PyBytes", "PyBackedBytes"), "bytes"),
    **dict.fromkeys(("Machine", "MachineArgument"), "Machine"),
    "ProcessFolder": "int | HeldProcess",
}
TRANSPARENT = {"Py", "PyRef", "PyResult", "Bound", "Argument"}
DEFAULTS = {"None": "None", "true": "True", "false": "False"}
TOKEN = re.compile(r"""r?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|'?\w+|->|=>|::|\S""")
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')
BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
T = TypeVar("T")


class Unknown(Exception):
    """A construct in the sources that this script does not know."""


@dataclass(frozen=True)
class Type:
    """A type of Rust: the last part of its path, with its arguments. A tuple's name is (), a list's []."""

    name: str
    of: tuple[Type, ...] = ()


Fields = list[tuple[str, Type]]


@dataclass(frozen=True)
class Function:
    """A function or method: its attributes as text, its parameters (without self), and its result type."""

    name: str
    attributes: list[str]
    parameters: Fields
    result: Type | None

    def has(self, attribute: str) -> bool:
        """Return whether the function has an attribute without arguments."""
        return attribute in self.attributes


@dataclass
class Source:
    """The declarations in the binding's files."""

    classes: dict[str, Fields] = field(default_factory=dict)
    structs: dict[str, Fields] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, Type] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)
    registered: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)


class Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = TOKEN.findall(COMMENT.sub(lambda found: "" if found[0].startswith("//") else found[0], text))
        self.at = 0

    def peek(self) -> str:
        """Return the next token; "" at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        """Take the next token."""
        self.at += 1
        return str(self.tokens[self.at - 1])

    def skips(self, *wanted: str) -> bool:
        """Take the next token if it is one of these; return whether it was."""
        found = self.peek() in wanted
        self.at += found
        return found

    def need(self, wanted: str) -> None:
        """Take the next token, which must be this one."""
        if not self.skips(wanted):
            raise Unknown(f"{wanted!r} was expected, found {' '.join(self.tokens[self.at : self.at + 8])!r}")

    def group(self) -> str:
        """Take a bracket, everything up to its closing bracket, and that bracket; return the tokens between them."""
        opening = self.next()
        closing, depth, start = BRACKETS[opening], 1, self.at
        while depth:
            token = self.next()
            depth += (token == opening) - (token == closing)
        return " ".join(self.tokens[start : self.at - 1])

    def skip_statement(self) -> None:
        """Take everything up to a semicolon that is outside brackets."""
        while not self.skips(";"):
            if self.peek() in ("(", "[", "{"):
                self.group()
            else:
                self.next()

    def listed(self, closing: str, read: Callable[[], T]) -> list[T]:
        """Take a list of what ``read`` reads, separated by commas, up to a bracket."""
        found: list[T] = []
        while not self.skips(closing):
            found.append(read())
            if self.peek() != closing:
                self.need(",")
        return found


def read_type(tokens: Tokens) -> Type:
    """Take a type; a reference counts as its target type."""
    while tokens.skips("&", "mut") or tokens.peek().startswith("'"):
        if tokens.peek().startswith("'"):
            tokens.next()
    if tokens.skips("("):
        return Type("()", tuple(tokens.listed(")", lambda: read_type(tokens))))
    if tokens.skips("["):
        item = read_type(tokens)
        if tokens.skips(";"):
            while tokens.peek() != "]":
                tokens.next()
        tokens.need("]")
        return Type("[]", (item,))
    return read_path(tokens)


def read_path(tokens: Tokens) -> Type:
    """Take a type that has a name."""
    name = tokens.next()
    while tokens.skips("::"):
        name = tokens.next()
    if not name.isidentifier():
        raise Unknown(f"{name!r} where a type was expected")
    found = tokens.listed(">", lambda: read_argument(tokens)) if tokens.skips("<") else []
    return Type(name, tuple(argument for argument in found if argument is not None))


def read_argument(tokens: Tokens) -> Type | None:
    """Take an argument of a type; None for a lifetime."""
    if tokens.peek().startswith("'"):
        tokens.next()
        return None
    return read_type(tokens)


def read_attributes(tokens: Tokens) -> list[str]:
    """Take the attributes before an item or field, and its visibility."""
    found = []
    while tokens.skips("#"):
        found.append(tokens.group())
    if tokens.skips("pub") and tokens.peek() == "(":
        tokens.group()
    return found


def read_field(tokens: Tokens) -> tuple[str, Type]:
    """Take a name with its type."""
    read_attributes(tokens)
    name = tokens.next()
    tokens.need(":")
    return name, read_type(tokens)


def read_parameter(tokens: Tokens) -> tuple[str, Type]:
    """Take a parameter; self has a type that is skipped later."""
    here = tokens.at
    if tokens.skips("&") or tokens.peek() in ("mut", "self"):
        tokens.skips("mut")
        if tokens.skips("self"):
            return "self", Type("Python")
    tokens.at = here
    return read_field(tokens)


def read_function(tokens: Tokens, attributes: list[str]) -> Function:
    """Take a function after its keyword, with its body."""
    name = tokens.next()
    if tokens.peek() == "<":
        tokens.group()
    tokens.need("(")
    parameters = tokens.listed(")", lambda: read_parameter(tokens))
    result = read_type(tokens) if tokens.skips("->") else None
    tokens.group()
    return Function(name, attributes, [pair for pair in parameters if pair[1].name != "Python"], result)


def read_struct(tokens: Tokens) -> tuple[str, Fields]:
    """Take a struct after its keyword. Return its name and fields; a struct without named fields has none.

    In the macro ``answers!`` the part ``of TYPE`` may follow the name; it is skipped.
    """
    name = tokens.next()
    if tokens.skips("of"):
        read_type(tokens)
    while tokens.peek() in ("<", "("):
        tokens.group()
    if tokens.skips(";"):
        return name, []
    tokens.need("{")
    return name, tokens.listed("}", lambda: read_field(tokens))


def read_item(tokens: Tokens, source: Source) -> None:
    """Take one item of a file."""
    attributes = read_attributes(tokens)
    keyword = tokens.next()
    if keyword in ("use", "mod", "const", "static"):
        tokens.skip_statement()
    elif keyword == "type":
        add_alias(tokens, source)
    elif keyword == "struct":
        name, fields = read_struct(tokens)
        found = source.classes if any(text.startswith("pyclass") for text in attributes) else source.structs
        shown = any("get_all" in text for text in attributes) or found is source.structs
        found[name] = fields if shown else []
        source.bases.update((name, base) for text in attributes for base in re.findall(r"extends = (\w+)", text))
    elif keyword == "fn" and "pyfunction" in attributes:
        function = read_function(tokens, attributes)
        source.functions[function.name] = function
    elif keyword == "impl":
        add_methods(tokens, source, attributes)
    elif keyword in ("fn", "trait", "enum"):
        while tokens.peek() != "{":
            tokens.next()
        tokens.group()
    elif tokens.peek() in ("!", "::"):
        add_macro(tokens, source, keyword)
    else:
        raise Unknown(f"{keyword!r} where an item was expected")


def add_alias(tokens: Tokens, source: Source) -> None:
    """Take a name for a type."""
    name = tokens.next()
    tokens.need("=")
    found = read_type(tokens)
    tokens.need(";")
    if source.aliases.setdefault(name, found) != found:
        raise Unknown(f"{name} is the name of two types")


def add_methods(tokens: Tokens, source: Source, attributes: list[str]) -> None:
    """Take an impl. Only impls for Python are kept."""
    if tokens.peek() == "<":
        tokens.group()
    name = read_type(tokens).name
    while tokens.peek() != "{":
        tokens.next()
    body = Tokens(tokens.group())
    while "pymethods" in attributes and body.peek():
        before = read_attributes(body)
        body.need("fn")
        source.methods.setdefault(name, []).append(read_function(body, before))


def add_macro(tokens: Tokens, source: Source, name: str) -> None:
    """Take a use or a definition of a macro.

    ``answers!`` declares classes, ``records!`` the fields that are read from Python objects, ``exports!`` the contents
    of the module.
    """
    while tokens.peek() not in BRACKETS:
        tokens.next()
    body = Tokens(tokens.group())
    tokens.skips(";")
    while name == "answers" and body.peek():
        read_attributes(body)
        body.need("struct")
        class_name, fields = read_struct(body)
        source.classes[class_name] = fields
        source.registered.append(class_name)
    while name == "records" and body.peek():
        record = body.next()
        body.need("{")
        source.records[record] = body.listed("}", body.next)
    while name == "exports" and body.peek():
        body.next()
        body.need(":")
        source.registered += body.listed(";", body.next)


def add_file(name: str, text: str, source: Source) -> None:
    """Add the declarations of one file."""
    tokens = Tokens(text)
    try:
        while tokens.peek():
            read_item(tokens, source)
    except Unknown as unknown:
        raise Unknown(f"{name}: {unknown}") from None


def read_source() -> Source:
    """Read all of the binding."""
    source = Source()
    for path in sorted(BINDING.glob("*.rs")):
        text = path.read_text(encoding="utf-8")
        if path.name == "lib.rs":
            source.constants += re.findall(r'module\.add\("([A-Z_]+)"', text)
        else:
            add_file(path.name, text, source)
    return source


class Core:
    """The types of the core that the binding uses."""

    def __init__(self) -> None:
        paths = [path for root in SOURCES for path in sorted(root.rglob("*.rs"))]
        self.text = "\n".join(path.read_text(encoding="utf-8") for path in paths)

    def _one(self, pattern: str) -> Tokens | None:
        """Return the tokens after the only match of a pattern in the core's sources; None if nothing matches."""
        places = [found.end() for found in re.finditer(rf"^pub {pattern}", self.text, re.MULTILINE)]
        if len(places) > 1:
            raise Unknown(f"the core has {len(places)} public items like {pattern!r}")
        return Tokens(self.text[places[0] : places[0] + (1 << 14)]) if places else None

    def alias(self, name: str) -> Type | None:
        """Return the type of an alias."""
        tokens = self._one(f"type {name} = ")
        return None if tokens is None else read_type(tokens)

    def fields(self, name: str) -> Fields:
        """Return the fields of a struct."""
        tokens = self._one(rf"struct (?={name} {{)")
        if tokens is None:
            raise Unknown(f"the core has no struct {name}")
        return read_struct(tokens)[1]

    def constant(self, name: str) -> Type:
        """Return the type of a constant."""
        tokens = self._one(f"const {name}: ")
        if tokens is None:
            raise Unknown(f"the core has no constant {name}")
        return read_type(tokens)


class Stub:
    """The text of the stub."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.core = Core()
        # The aliases that the stub uses.
        self.aliases: dict[str, str] = {}
        both = set(source.classes) & set(source.records)
        if both:
            raise Unknown(f"classes and arguments of one name: {both}")

    def type(self, found: Type, given: bool = False) -> str:
        """Return a type in Python; ``given``: for an argument."""
        inner = [self.type(part, given) for part in found.of]
        if found.name == "()":
            return f"tuple[{', '.join(inner)}]" if inner else "None"
        if found.name in ("Vec", "[]"):
            is_bytes = found.of[0].name == "u8"
            return "bytes" if is_bytes else f"{'Sequence' if given else 'list'}[{inner[0]}]"
        if found.name == "Option":
            return f"{inner[0]} | None"
        if found.name in ("HashMap", "HashSet"):
            return f"{'dict' if found.name == 'HashMap' else 'set'}[{', '.join(inner)}]"
        return inner[0] if found.name in TRANSPARENT else self.named(found)

    def named(self, found: Type) -> str:
        """Return the Python name of a named type."""
        source, name = self.source, found.name
        if found.of:
            raise Unknown(f"no type of Python's is known for {name} with arguments")
        if name in NAMES:
            return NAMES[name]
        if name in source.classes or name in source.records or name in CALLABLES:
            return name
        alias = source.aliases.get(name) or self.core.alias(name)
        if alias is None:
            raise Unknown(f"no type of Python's is known for {name}")
        self.aliases[name] = self.type(alias, True)
        return name

    def function(self, function: Function, owner: str | None = None) -> Iterator[str]:
        """Return the lines of a function, or of a method of ``owner``."""
        defaults = signature(function)
        parameters = [f"{name}: {self.type(kind, True)}{defaults[name]}" for name, kind in function.parameters]
        name, result = function.name, "None" if function.result is None else self.type(function.result)
        result = owner if result == "Self" and owner else result
        if function.has("staticmethod"):
            yield "@staticmethod"
        elif function.has("getter"):
            yield "@property"
        if function.has("new"):
            name, result = "__init__", "None"
        if owner and not function.has("staticmethod"):
            parameters.insert(0, "self")
        yield from definition(name, parameters, result, WIDTH - (4 if owner else 0))

    def members(self, name: str) -> Iterator[str]:
        """Return the lines inside a class."""
        for field_name, kind in self.source.classes[name]:
            yield f"{field_name}: Final[{self.type(kind)}]"
        for method in self.source.methods.get(name, []):
            if not method.name.startswith("__") or method.name == "__len__":
                yield from self.function(method, name)

    def protocol(self, name: str) -> Iterator[str]:
        """Return the lines inside a protocol, for a type that is read from an argument."""
        source, names = self.source, self.source.records[name]
        fields = dict(source.structs.get(name) or self.core.fields(name))
        if set(fields) != set(names):
            raise Unknown(f"fields of {name} that are not read, or read and not there: {set(fields) ^ set(names)}")
        for field_name in names:
            yield from ("@property", f"def {field_name}(self) -> {self.type(fields[field_name], True)}: ...")

    def parts(self) -> Iterator[str]:
        """Return the parts of the stub after its head."""
        source = self.source
        based = {name: f"({base})" for name, base in source.bases.items()}
        classes = [block(name + based.get(name, ""), self.members(name)) for name in source.classes]
        protocols = [block(f"{name}(Protocol)", self.protocol(name)) for name in source.records]
        functions = [line + "\n" for function in source.functions.values() for line in self.function(function)]
        constants = [f"{name}: {self.type(self.core.constant(name))}\n" for name in source.constants]
        callables = [f"{name} = {kind}\n" for name, kind in CALLABLES.items()]
        aliases = [f"{name} = {kind}\n" for name, kind in sorted(self.aliases.items())]
        yield from ("".join(constants), "class Fault(Exception): ...\n", "".join([*callables, *aliases]))
        yield from (*protocols, *classes, "".join(functions))

    def text(self) -> str:
        """Return the whole text."""
        text = HEAD + "\n".join(self.parts())
        declared = {*self.source.classes, *self.source.functions}
        if declared != set(self.source.registered):
            raise Unknown(f"declared or registered, and not both: {declared ^ set(self.source.registered)}")
        return text


def signature(function: Function) -> dict[str, str]:
    """Return the default of each parameter as in the source, "" for those without."""
    found = dict.fromkeys((name for name, _kind in function.parameters), "")
    for text in function.attributes:
        given = re.fullmatch(r"pyo3 \( signature = \( (.*?) \) \)", text)
        for name, value in re.findall(r"(\w+) = ((?:\w+|:: |\( \)| )+)", given[1]) if given else ():
            found[name] = f" = {DEFAULTS.get(value.strip(), '...')}"
    return found


def definition(name: str, parameters: list[str], result: str, width: int) -> Iterator[str]:
    """Return the lines of a def, wrapped as ruff wraps them."""
    line = f"def {name}({', '.join(parameters)}) -> {result}: ..."
    inner = "    " + ", ".join(parameters)
    if len(line) <= width:
        yield line
        return
    yield f"def {name}("
    yield from [inner] if len(inner) <= width else [f"    {parameter}," for parameter in parameters]
    yield f") -> {result}: ..."


def block(name: str, lines: Iterator[str]) -> str:
    """Return the lines of a class."""
    inside = "".join(f"    {line}\n" for line in lines)
    return f"class {name}:\n{inside}" if inside else f"class {name}: ...\n"


def main() -> None:
    """Compare the stub with the sources, or write it."""
    text = Stub(read_source()).text()
    if sys.argv[1:] == ["--write"]:
        STUB.write_text(text, encoding="utf-8")
    elif sys.argv[1:]:
        raise SystemExit("usage: native_stub.py [--write]")
    elif STUB.read_text(encoding="utf-8") != text:
        raise SystemExit("gdbheap/_native.pyi is not what native/binding says: scripts/native_stub.py --write")


if __name__ == "__main__":
    main()
