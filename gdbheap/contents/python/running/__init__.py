"""What runs in a Python process: interpreters, threads, frames, coroutines; and the tables of tracemalloc."""
