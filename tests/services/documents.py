"""lxml: parsed documents that are kept: documents.py COUNT READY"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

from lxml import etree, html

rng = random.Random(2)


def page(number: int) -> str:
    """Return a page of some 300 elements."""
    rows = "".join(
        f"<tr id='r{row}'><td>{rng.random()}</td><td class='name'>item {row}</td></tr>" for row in range(100)
    )
    return f"<html><head><title>{number}</title></head><body><table>{rows}</table></body></html>"


DOCUMENTS = [html.fromstring(page(number)) for number in range(int(sys.argv[1]))]
INDEX = {element.get("id"): element for document in DOCUMENTS for element in document.iter("tr")}
SHEET = etree.XSLT(etree.XML(
    "<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>"
    "<xsl:template match='/'><rows><xsl:copy-of select='//td'/></rows></xsl:template></xsl:stylesheet>"
))  # fmt: skip
RESULTS = [SHEET(document) for document in DOCUMENTS[::4]]
Path(sys.argv[2]).touch()
signal.pause()
