"""The layouts of other programs' structs, such as CPython's: the offsets of the fields, with their sources."""
