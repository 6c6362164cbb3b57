"""Compare many processes: what each of them has, what they share, and why pages are no longer shared."""
