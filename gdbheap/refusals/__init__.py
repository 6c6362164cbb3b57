"""Why a process cannot be looked into, and what would help."""
