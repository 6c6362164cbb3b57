"""holder: one holder has a quarter of RSS or more."""

from __future__ import annotations

from gdbheap.answers.findings.holder import Holder, MainHolder
from gdbheap.python.homes import ONE_FILE
from gdbheap.report.findings.words import Words
from gdbheap.report.main_holders import described

GROWS = "'heap snapshot' now and 'heap diff' later tell whether it grows"
# The remedy for each type of object.
REMEDIES = {
    "sqlite3.Connection": "PRAGMA shrink_memory gives the page caches back, PRAGMA cache_size limits them",
    "functools._lru_cache_wrapper": "give it a maxsize that is smaller, or call its cache_clear()",
    "ssl.SSLContext": "make one context and use it for all connections",
}
# The remedy by the beginning of the holder's name.
OF_NAMES = {
    "channel messages": "bound the channel, or add receivers: messages come faster than they are taken",
    "lctx of ": "'redis-cli SCRIPT FLUSH' drops the scripts; call EVAL with one text and pass what differs as KEYS and "
    "ARGV",
    "logging.Logger.manager.loggerDict": "use one logger with a LoggerAdapter for each job: the manager keeps all",
    "lxml.etree._ParserDictionaryContext": "parse documents with ever new names in a process that ends: libxml2 "
    "keeps each name",
    "matplotlib._pylab_helpers.Gcf.figs": "call plt.close(figure) when a figure is done",
    "objects in the Java heap": "call end() or close() when an object is done; a full collection frees what nothing "
    "refers to",
}
# The remedy by the beginning of the type that most of the holder's bytes are.
OF_PARTS = {
    "prometheus_client.": "use labels with few values, such as a route and not a path",
    "ssl.SSLContext": REMEDIES["ssl.SSLContext"],
}
OF_MODULES = "import the file once, or delete the modules from sys.modules"


def _text(figures: Holder) -> str:
    holder = figures.holder
    what = described(holder)
    way = f"; it leads to its largest block by {holder.way}" if holder.way else ""
    least = "at least so much is " if holder.at_least else ""
    return f"{least}in use, and held by {holder.path}{f' ({what})' if what else ''}{way}"


def _advice(figures: Holder) -> str:
    remedy = _remedy(figures.holder)
    if remedy is not None:
        return f"{remedy}; {GROWS}"
    return f"if this is more than the program needs, set a limit on it or drop what is no longer used; {GROWS}"


def _remedy(holder: MainHolder) -> str | None:
    """Return what helps against a holder of a known kind; None for others."""
    most = holder.parts[0].what if holder.parts else ""
    known = [REMEDIES[holder.what]] if holder.what in REMEDIES else []
    known += [OF_MODULES] if holder.kind == ONE_FILE else []
    known += [text for name, text in OF_NAMES.items() if holder.path.startswith(name)]
    known += [text for name, text in OF_PARTS.items() if most.startswith(name)]
    return known[0] if known else None


WORDS = Words(Holder, _text, _advice)
