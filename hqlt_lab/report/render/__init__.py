"""Output formats of a report.

text_tables       tables as Markdown and as rich tables for the terminal
latex             the results table for a paper
csv_table         every number in full precision
json_report       the whole report for programs
cells_dataframe   one line per cell, as a pandas DataFrame
html_page         a self-contained HTML page
reproduction      how to reproduce a report: commands, code versions and machine
write_report      writes all files to disk
"""
