"""The parts of texts: numbers, tables, styles, and parts that several answers share."""
