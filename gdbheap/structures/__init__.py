"""What the blocks of programs that are not written in Python hold."""
