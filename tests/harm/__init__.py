"""Proof that no process is harmed: real programs under load, and one that checks itself, observed from outside."""
