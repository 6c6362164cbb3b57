"""Sample running processes over time: samples, series of samples, and curves."""
