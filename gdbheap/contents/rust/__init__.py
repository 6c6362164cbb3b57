"""What blocks of Rust hold."""
