"""What runs: interpreters, threads, frames, coroutines, the tables of tracemalloc."""
