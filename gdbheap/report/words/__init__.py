"""Answers for people: a file an answer."""
