"""The reference pages, written from the code that checks and parses: no list in them is kept by hand.

experiment_file   every section and key, every part and option      from the JSON Schema and the registry
command_line      every verb, argument and option, the exit codes   from the typer app
python            every public name                                 from signatures and docstrings
pages             which page is which, and writing them

    python -m hqlt_lab.reference docs/reference        what `make reference` does
"""
