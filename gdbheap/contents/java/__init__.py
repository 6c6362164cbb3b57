"""Where a JVM has its heap."""
