"""Where the frozen program begins: the same entry point as the installed command `bitnet-edge`."""

import os
import sys
from types import ModuleType, SimpleNamespace

# The start-up set this variable, and the loader has read it: programs that are started from here get the user's again.
os.environ.pop("LD_LIBRARY_PATH", None)
if "LD_LIBRARY_PATH_ORIG" in os.environ:
    os.environ["LD_LIBRARY_PATH"] = os.environ.pop("LD_LIBRARY_PATH_ORIG")

# prompt_toolkit reads a markup of its own with an XML parser, for progress bars that nothing here shows.  Without that
# parser the program is 0.14 MB smaller.
parent = None
for name in ("xml", "xml.dom", "xml.dom.minidom"):
    module = sys.modules[name] = ModuleType(name)
    if parent is not None:
        setattr(parent, name.rpartition(".")[2], module)
    parent = module
module.parseString = lambda text: SimpleNamespace(childNodes=())  # type: ignore[attr-defined]

from edge.cli.main import main  # noqa: E402

main()
