"""The place of a JVM's heap."""
