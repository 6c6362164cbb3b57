"""Arrays and tables of numpy, pandas, polars, pyarrow and torch, read from memory."""
