"""Where the frozen program begins: the same entry point as the installed command `bitnet-edge`."""

from edge.cli.main import main

main()
