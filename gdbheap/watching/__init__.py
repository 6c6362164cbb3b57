"""Wait until a process, its control group or the machine reaches a condition, and then act."""
