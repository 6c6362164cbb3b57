"""Running Python code: interpreters, threads, frames, coroutines, and the tables of tracemalloc."""
