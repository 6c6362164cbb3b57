"""Many moments of running processes: samples, series, curves."""
