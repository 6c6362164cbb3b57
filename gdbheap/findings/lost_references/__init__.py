"""The finding ``lost-references``: objects whose reference count is larger than the number of references."""
