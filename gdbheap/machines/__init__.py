"""The kinds of machines (CPU architectures) of programs, and the headers of ELF images."""
