"""Output formats for programs, and pictures. Each format has a file."""
