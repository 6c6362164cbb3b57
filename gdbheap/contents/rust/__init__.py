"""The contents of blocks of Rust programs."""
