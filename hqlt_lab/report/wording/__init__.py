"""Sentences of a report.

answer            the answer to the study's question, and the comparisons with the baseline
verdicts          verdicts as text
caveats           warnings about the results
table_notes       notes below the results table
tuning_notes      notes and caveats on tuned values and the windows that work
solve_time_notes  notes on the steps to solve
noise_floor       notes on the spread over seeds and the smallest detectable difference
"""
