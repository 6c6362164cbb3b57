"""All texts and documents that gdbheap writes, for people and for programs. Only this package formats numbers.

The folder ``words/`` has a file for the text of each answer, ``text/`` the parts of these texts, ``formats/`` JSON,
profiles and pictures, ``page/`` the pages for a browser.
"""
