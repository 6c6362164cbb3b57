"""Pages for a browser. They load nothing else, and their pictures are laid out when they are written. Most sections
have a file of their own."""
