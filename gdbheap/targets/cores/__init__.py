"""The files of cores: their notes, packed cores, systemd's cores, and the files that their processes had mapped."""
