"""The finding ``other-held``: memory to which the static data of one library points."""
