"""Texts of values, and the rules for what they may show."""
