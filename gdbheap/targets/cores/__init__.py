"""The files of cores: their notes, packed ones, systemd's, and the files that their processes had mapped."""
