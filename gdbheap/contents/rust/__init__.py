"""The contents of Rust blocks."""
