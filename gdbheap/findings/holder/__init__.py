"""The finding ``holder``: its rule, and its words."""
