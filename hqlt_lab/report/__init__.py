"""From records to an answer: statistics, tables, one sentence.  No torch, no store: cells as they stand are enough.

statistics    several seeds in a few numbers
intervals     where a mean lies; many comparisons at once
chance        exact tests
differences   each arm against its baseline, and the verdict
effects       main effects and interactions of a grid
importance    which hyper-parameter explains how much, where it is asked
rows          one row per arm, at the point it is judged by
curves        what the folder of a cell says about its training
warnings      what a reader should know before believing the table
answer        the question answered in one sentence
verdict       the comparisons in words
table         the rows as text
notes         what its numbers mean
protocols     numbers of lm-eval that were made alike
more_tables   effects and importance as text
render        that text as Markdown and in the terminal
lines         the numbers themselves, as CSV
frame         every cell, as a pandas DataFrame
words         numbers and names as people read them
latex         the table for a paper
as_json       everything, for programs
figures       what the numbers look like
sections      what stands on the page
page          that page: HTML that needs nothing else
saved         all of it on disk
report        all of it
compare       cells, studies and published values side by side
"""
