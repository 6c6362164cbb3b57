"""Objects of types in C with their references: lines ``holder target name`` for the file argv[1], both addresses."""

import functools
import gc
import itertools
import os
import sys


class Thing(object):
    """A class whose objects have distinct addresses."""

    def __getitem__(self, place):
        return place


kept, lines = [], []


def refers(holder, target, name):
    """Write that the holder has the target in the field of that name."""
    kept.append((holder, target))
    lines.append("%d %d %s" % (id(holder), id(target), name))


def referents(holder, name):
    """Write the referents of an object by the collector, if they have the type of that name."""
    return [one for one in gc.get_referents(holder) if type(one).__name__ == name]


def of_iterators():
    """Make iterators of builtins and of itertools."""
    things, made = [Thing(), Thing()], Thing
    pair, names, some = (things[0], things[1]), {"thing": things[0]}, set(things)
    source = iter(things)
    for one, name in (
        (itertools.islice(source, 3), "->it"),
        (itertools.cycle(source), "->it"),
        (itertools.takewhile(made, source), "->it"),
        (itertools.dropwhile(made, source), "->it"),
        (itertools.starmap(made, source), "->it"),
        (itertools.groupby(source, made), "->it"),
        (itertools.compress(source, things), "->data"),
        (enumerate(source), "->en_sit"),
    ):
        refers(one, source, name)
    refers(itertools.takewhile(made, source), made, "->func")
    refers(itertools.groupby(source, made), made, "->keyfunc")
    refers(itertools.repeat(things[0]), things[0], "->element")
    refers(source, things, "->it_seq")
    refers(iter(pair), pair, "->it_seq")
    refers(reversed(pair), pair, "->seq")
    refers(iter(things[1]), things[1], "->it_seq")
    refers(iter(names), names, "->di_dict")
    refers(iter(some), some, "->si_set")
    refers(iter(made, things[0]), things[0], "->it_sentinel")
    if sys.version_info[0] == 3:
        refers(names.values(), names, "->dv_dict")
        refers(map(made, source), made, "->func")
        refers(filter(made, source), source, "->it")
        refers(itertools.accumulate(source, made), made, "->binop")
    else:
        refers(names.viewvalues(), names, "->dv_dict")


def of_views():
    """Make views of other objects' memory."""
    data = bytearray(100)
    view = memoryview(data)
    if sys.version_info[0] == 3:
        refers(view, data, ".obj")
        (managed,) = referents(view, "managedbuffer")
        refers(view, managed, "->mbuf")
        refers(managed, data, "->master.obj")
    else:
        refers(view, data, "->base")


def of_caches():
    """Make tables of functools.lru_cache, and objects that bind arguments."""
    thing, key = Thing(), 10**9 + os.getpid()
    refers(functools.partial(Thing, thing), Thing, ".func")
    refers(property(Thing), Thing, ".fget")
    refers(kept.append, kept, ".__self__")
    if sys.version_info[0] == 2:
        return
    for most in (None, 8):
        call = functools.lru_cache(most)(lambda _key: thing)
        call(key)
        (table,) = [one for one in referents(call, "dict") if one is not call.__dict__]
        refers(call, table, "->cache")
        if most:
            (link,) = table.values()
            refers(link, thing, "->result")
            refers(link, next(iter(table)), "->key")


def of_contexts():
    """Make context variables, and the objects of ssl."""
    thing = Thing()
    if sys.version_info >= (3, 7):
        import contextvars

        variable = contextvars.ContextVar("variable", default=thing)
        refers(variable, thing, "->var_default")
        refers(variable.set(Thing()), variable, ".var")
        context = contextvars.copy_context()
        (table,) = referents(context, "hamt")
        refers(context, table, "->ctx_vars")
    try:
        import ssl
    except ImportError:
        return
    if sys.version_info[0] == 3:
        context = ssl.SSLContext(getattr(ssl, "PROTOCOL_TLS_CLIENT", ssl.PROTOCOL_TLS))
        context.check_hostname = False
        found = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())._sslobj
        refers(getattr(found, "_sslobj", found), context, ".context")


def of_arrays():
    """Make numpy's arrays."""
    try:
        import numpy
    except ImportError:
        return
    data = numpy.zeros(100)
    refers(data[:10], data, ".base")
    refers(data, data.dtype, ".dtype")


for write in (of_iterators, of_views, of_caches, of_contexts, of_arrays):
    write()
with open(sys.argv[1], "w") as out:
    out.write("\n".join(lines))
os.read(0, 1)
