"""The finding ``musl-mappings``: a few blocks pin whole mappings of musl's malloc."""
