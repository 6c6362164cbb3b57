"""The contents of C++ blocks."""
