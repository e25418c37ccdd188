"""``python -m edge`` is ``bitnet-edge``."""

from edge.cli.main import main

if __name__ == "__main__":
    main()
