"""Call functions in a live process, after gdbheap has proven that the call cannot hang."""
