"""The finding ``cycles``: unreachable objects that only refer to one another."""
