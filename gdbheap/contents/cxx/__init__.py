"""The kinds of the blocks of C++ and Rust programs, such as objects, strings and container nodes."""
