"""What was found, as tables: one declaration, and what is written or asked in its terms."""
