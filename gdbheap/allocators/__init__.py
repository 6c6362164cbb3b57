"""Who handed these bytes out: ``allocator.py`` is the protocol that each implements in a folder of its own, and
``finding.py`` lists them. Also runtimes and allocators that are only recognised."""
