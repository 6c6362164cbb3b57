"""The running parts of Python: interpreters, threads, frames and coroutines. Also the tables of tracemalloc."""
