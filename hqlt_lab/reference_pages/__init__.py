"""Generate the reference pages of the documentation from the code that parses and checks.

experiment_file   every section, key, component and option           from the JSON Schema and the registry
command_line      every command, argument, option and exit code      from the typer app
python_api        every public name                                  from signatures and docstrings
page_index        which page is written to which file
markdown          building blocks of a page

    python -m hqlt_lab.reference_pages docs/reference        what `make reference` runs
"""
