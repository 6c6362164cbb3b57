"""A Python process to measure on, whose memory is mostly C structures: documents of lxml.

Prints one line of JSON when it is ready: {"pid"}; ends when its standard input does.

Usage: target_lxml.py [DOCUMENTS]
"""

from __future__ import annotations

import importlib
import json
import os
import sys

etree = importlib.import_module("lxml.etree")
count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
text = "".join(f'<row number="{number}" name="name {number}">text {number}</row>' for number in range(2000))
documents = [etree.fromstring(f"<rows>{text}</rows>") for _ in range(count)]
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
