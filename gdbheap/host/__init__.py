"""What the kernel's books on this machine say: processes, control groups, mounts, what is free."""
