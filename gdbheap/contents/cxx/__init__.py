"""The contents of the blocks of C++ and Rust programs."""
