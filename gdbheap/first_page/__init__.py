"""Build the first page: the ledger, the main holders, the findings, and the commands to type next."""
