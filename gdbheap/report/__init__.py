"""What a person or a script sees: tables, sentences, JSON. The only place that formats numbers; nothing is computed
here that an answer could have computed, and nothing is printed."""
