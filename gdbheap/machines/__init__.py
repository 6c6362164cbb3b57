"""The machines that programs are built for: their records, and the headers of ELF images."""
