"""Answers as text for people: one file for each answer."""
