"""What answers have in common: whose each byte is, what a block is called, paths, records."""
