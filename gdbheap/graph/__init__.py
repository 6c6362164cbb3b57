"""Graphs of references between blocks: their roots, the meaning of their node numbers, and the graph without Python."""
