"""The finding ``after-fork``: its rule, and its words."""
