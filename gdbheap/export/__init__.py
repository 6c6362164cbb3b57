"""Export the answers as tables: their declaration, and the files and queries in its terms."""
