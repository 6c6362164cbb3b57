"""The finding ``after-fork``: pages that processes share after fork()."""
