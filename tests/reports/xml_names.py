"""Documents with ever new names: libxml2 keeps all names in a dictionary of the thread (cebel/pyuniprot#5)."""

import sys

from lxml import etree

for n in range(3000):
    names = "".join(f'<item_{n}_{k} xml:id="id-{n}-{k}" attribute_{n}_{k}="v"/>' for k in range(40))
    doc = etree.fromstring(f"<root>{names}</root>")
    assert len(doc) == 40
del doc
print("READY", flush=True)
sys.stdin.readline()
