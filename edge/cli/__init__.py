"""The command line: parse, call edge.*, print.  The only layer that prints, reads the terminal or handles signals."""
