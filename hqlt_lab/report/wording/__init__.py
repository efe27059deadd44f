"""Sentences of a report.

answer        the answer to the study's question, and the comparisons with the baseline
verdicts      verdicts as text
caveats       warnings about the results
table_notes   notes below the results table
noise_floor   notes on the spread over seeds and the smallest detectable difference
"""
