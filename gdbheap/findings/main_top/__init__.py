"""The finding ``main-top``: its rule, and its words."""
