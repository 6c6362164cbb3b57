"""The layouts of other programs' structs, such as CPython's: where their fields are in a target, and how gdbheap
knows."""
