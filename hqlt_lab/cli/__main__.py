"""`python -m hqlt_lab.cli` runs `hqlt` with the current Python interpreter; used by job scripts."""

from hqlt_lab.cli import main

main()
