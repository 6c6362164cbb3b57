"""The finding ``holder``: one holder of at least a quarter of RSS."""
