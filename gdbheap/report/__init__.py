"""Everything that a person or a program reads. Only this package formats numbers.

``words/`` has a file for the text of each answer, ``text/`` has the parts of these texts, ``formats/`` JSON, profiles
and pictures, ``page/`` the pages for a browser.
"""
