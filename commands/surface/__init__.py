"""The parts that all commands share: declarations, options, help, answering and rendering."""
