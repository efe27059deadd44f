"""python -m hqlt_lab.cli: the `hqlt` command of this very Python, for programs that start it."""

from hqlt_lab.cli import main

main()
