"""Trained models beyond the test of their task.

long_context    further than training went: longer text, more pairs, larger distances
needle          a number that the text mentions once, asked for much later
token_cost      what one more token costs after a context
"""
