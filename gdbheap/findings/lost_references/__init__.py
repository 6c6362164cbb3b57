"""The finding ``lost-references``: its rule, and its words."""
