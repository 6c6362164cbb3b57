"""Compare many processes: what each has, what they share, and why pages are no longer shared."""
