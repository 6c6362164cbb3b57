"""Machines that programs are made for: their records, and the headers of ELF images."""
