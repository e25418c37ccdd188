"""The command line: parse, call edge.*, print.  The only floor that prints, reads the terminal or touches signals."""
