"""Findings: memory that could be returned or avoided. Each finding of docs/findings.md has a folder.

The module ``rule.py`` of a folder makes the finding's record. The module ``words.py`` makes the finding's text and
advice. Only the report imports ``words.py``.
"""
