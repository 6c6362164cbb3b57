"""When to look: what a process, its control group and the machine must come to, and how that is waited for."""
