"""Everything that a person or a program sees; only this package formats numbers.

``words/`` has a file for each answer, ``text/`` what these are made of, ``formats/`` JSON, profiles and pictures,
``page/`` the pages for a browser.
"""
