"""The graph of a target: blocks, the references between them, and the roots that lead to them."""
