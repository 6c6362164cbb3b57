"""Values as text, and rules for how much of it may be shown."""
