"""One module for each question; plain records, whose field names are the keys of ``--json``; nothing is printed.
``accounting/`` is what they have in common: whose each byte is, what a block is called, paths, records."""
