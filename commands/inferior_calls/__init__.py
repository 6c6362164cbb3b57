"""Call functions in a live process, after the proof that the call cannot hang."""
