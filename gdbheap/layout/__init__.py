"""Where the fields of other people's structs lie in this target, and how that is known."""
