"""Values as text, and how much of it may be shown."""
