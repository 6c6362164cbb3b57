"""What used blocks hold, a folder for each kind of contents. Of Python: ``objects/`` (what each is, owns, refers to),
``names/``, ``running/`` (interpreters, threads, frames, coroutines), ``text/`` and ``arrays/``."""
