"""The finding ``lost-blocks``: its rule, and its words."""
