"""The finding ``free-chunks``: whole pages that free() leaves resident."""
