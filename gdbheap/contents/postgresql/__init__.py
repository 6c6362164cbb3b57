"""PostgreSQL's memory contexts."""
