"""Where the fields of other people's structs are in this target, and how that is known."""
