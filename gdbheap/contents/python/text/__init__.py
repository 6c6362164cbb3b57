"""Texts of values, and the rules for the contents that they may show."""
