"""The finding ``lost-blocks``: blocks to which nothing points."""
