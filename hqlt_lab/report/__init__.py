"""From records to an answer: statistics, tables, one sentence.  No torch, no store: cells as they stand are enough.

statistics    several seeds in a few numbers
rows          one row per arm, at the point it is judged by
curves        what the folder of a cell says about its training
warnings      what a reader should know before believing the table
answer        the question answered in one sentence
table         the rows as text
render        that text as Markdown and in the terminal
lines         the numbers themselves, as CSV
frame         every cell, as a pandas DataFrame
words         numbers and names as people read them
report        all of it
"""
