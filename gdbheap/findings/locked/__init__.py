"""The finding ``locked``: free memory that mlock() keeps resident."""
