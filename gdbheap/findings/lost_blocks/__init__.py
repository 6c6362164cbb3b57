"""The finding ``lost-blocks``: the rule that detects it, and its texts."""
