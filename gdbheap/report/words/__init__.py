"""The texts of answers, for people. Each answer has a file of its own."""
