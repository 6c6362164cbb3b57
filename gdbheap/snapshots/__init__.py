"""One moment of a process or a core: taking it, its file, and what changed between several. It works on the records of
answers, so that a process, a core and a file are the same to it."""
