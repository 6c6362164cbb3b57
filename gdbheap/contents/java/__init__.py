"""The contents of a program with a JVM: only the address range of the Java heap."""
