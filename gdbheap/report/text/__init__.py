"""How text is made: numbers, tables, styles, and parts that several answers share."""
