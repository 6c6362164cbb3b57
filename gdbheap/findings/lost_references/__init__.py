"""The finding ``lost-references``: the rule that detects it, and its texts."""
