"""``python -m lab``."""

from lab.commands import lab

lab.main(prog_name="python -m lab")
