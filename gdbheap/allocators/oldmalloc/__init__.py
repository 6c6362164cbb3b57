"""musl's malloc before 1.2.1: its chunks and bins."""
