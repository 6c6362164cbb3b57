"""Pages for a browser. They load no other files, and their pictures are laid out when they are written. Most sections
have a file of their own.
"""
