"""Timings: when a token enters which memory, and for how long."""
