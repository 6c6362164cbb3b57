"""The types of objects in Rust programs, and a test whether a program is one."""
