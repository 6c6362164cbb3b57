"""The contents of a program with a JVM: only the place of its heap."""
