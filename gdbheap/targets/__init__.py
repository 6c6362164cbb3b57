"""Where bytes come from: a process, one that runs on, a copy of one, or a core, as one address space with mappings,
residency, threads and loaded objects. ``cores/`` has what belongs to cores alone.

Nothing to the right of this package knows which of them it looks at.
"""
