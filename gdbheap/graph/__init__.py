"""The references between blocks and the roots that lead to them: what the numbers of a native graph stand for, and the
graph of a program without Python."""
