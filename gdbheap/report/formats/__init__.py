"""Answers for programs, and pictures: a file a format."""
