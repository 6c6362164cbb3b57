"""The finding ``equal-strings``: many strings with few values."""
