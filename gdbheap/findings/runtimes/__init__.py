"""The finding ``runtimes``: its rule, and its words."""
