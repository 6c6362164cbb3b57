"""Build the first page: the table of the memory, the main holders, the findings, and the commands to type next."""
