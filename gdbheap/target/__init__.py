"""Where bytes come from: a live process or a core, as one address space with mappings, residency, threads and files.

Nothing to the right of this package knows which of the two it looks at. Modules: ``mappings`` (what the kernel says of
the address space), ``image`` and ``elf`` (ELF headers in memory, ELF files on disk), ``procfs``, ``process``, ``core``
and ``notes`` (the two kinds of target), ``refusal`` and ``causes`` (why the kernel says no), ``open`` (what a person
typed).
"""
