"""Answers for programs, and pictures: one file for each format."""
