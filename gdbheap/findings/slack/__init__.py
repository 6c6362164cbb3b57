"""The finding ``slack``: containers with much unused capacity."""
