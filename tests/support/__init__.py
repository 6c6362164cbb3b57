"""What tests share: programs to look at, what they say of themselves, and how gdbheap is asked."""
