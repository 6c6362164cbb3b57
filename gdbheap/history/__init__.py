"""Looks at different times: what a look is, the file that keeps one, and what changed between several."""
