"""Graphs of references between blocks, from their roots on: the meaning of the native graph's node numbers, and the
graph of a program without Python."""
