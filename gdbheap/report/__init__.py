"""All texts and documents that gdbheap writes, for people and for programs. Only this package formats numbers.

The folder ``words/`` has a file for the text of each answer; ``text/`` has the parts of these texts. ``formats/``
writes JSON, profiles and pictures. ``page/`` writes the pages for a browser.
"""
