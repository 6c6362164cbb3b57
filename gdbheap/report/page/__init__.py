"""Pages for a browser that need nothing else and are laid out when written; one file for each section."""
