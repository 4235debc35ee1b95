"""The command `st-xlret calibrate` from a checkout of the repository: see st_xlret/commands/calibrate.py."""

import sys

from st_xlret.commands import run

if __name__ == "__main__":
    run("calibrate", sys.argv[1:], prog="calibrate.py")
