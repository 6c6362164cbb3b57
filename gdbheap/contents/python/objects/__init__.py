"""Objects and what they own: where each lies, how large it is, what it refers to."""
