"""Facts from this machine's kernel: processes, control groups, mounts, free memory."""
