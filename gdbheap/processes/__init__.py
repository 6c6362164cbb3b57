"""Compare many processes: the memory of each, their shared memory, and the reasons why pages are not shared."""
