"""Code that tests share: target programs, their own figures, and calls of gdbheap."""
