"""Export answers as tables: the declaration of the tables, the files that contain tables, and queries over tables."""
