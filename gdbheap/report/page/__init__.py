"""Pages for a browser that need nothing else: laid out when they are written, a file for each section."""
