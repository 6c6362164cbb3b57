"""Export answers as tables: the declaration of the tables, the files that contain them, and queries over them."""
