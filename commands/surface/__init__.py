"""What a command is, and what happens between one and whoever asks: declarations, options, help, answers, rendering."""
