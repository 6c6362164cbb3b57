"""A fuzzer of cores: damaged copies of real cores, every command on each, in worker processes with limits."""
