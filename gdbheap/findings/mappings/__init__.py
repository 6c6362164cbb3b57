"""The findings ``mapped-memory``, ``shared-memory``, ``mapped-files``: memory that no malloc handed out."""
