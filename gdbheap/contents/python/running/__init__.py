"""The running parts of Python: interpreters, threads, frames, coroutines; and the tables of tracemalloc."""
