"""Processes that never ran: heaps of every glibc since 2.17, laid out word by word and written as cores.

- ``layouts``: the structures of each glibc, stated here a second time and not taken from the package.
- ``memory``: an address space, and the core file made of it.
- ``heap``: random heaps in it. An ``Image`` keeps the truth about them in plain tables: the state of each chunk, the
  bytes of each arena, the chunks in each thread's cache.

An image can be damaged word by word before it is written. Everything follows from the seed of its generator.
"""
