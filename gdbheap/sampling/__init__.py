"""Sample running processes over time: samples, series of them, curves."""
