"""The first page: the ledger, the main holders, the findings' place in it, what to type next."""
