"""Answers to the user's questions, one module for each command.

Answers are plain records. Their field names are the keys of ``--json``. Nothing is printed here. The folder
``accounting/`` has the code that these modules share: the owner of each byte, names of blocks, paths, records.
"""
