"""Graphs of references between blocks: their roots, the meaning of the native graph's node numbers, and the graph of a
program without Python."""
