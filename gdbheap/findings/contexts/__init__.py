"""The finding ``contexts``: its rule, and its words."""
