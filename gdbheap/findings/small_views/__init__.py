"""The finding ``small-views``: its rule, and its words."""
