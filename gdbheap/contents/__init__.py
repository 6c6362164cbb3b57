"""The contents of blocks in use, with a folder for each kind of contents.

For Python: ``objects/`` (what each object is, owns and refers to), ``names/``, ``running/`` (interpreters, threads,
frames, coroutines), ``text/`` and ``arrays/``."""
