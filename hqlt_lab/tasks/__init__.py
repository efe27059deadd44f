"""Tasks and environments that models are trained on: one file per registered task in a folder per group.

recall/            remember pairs, and read the value of a key
copying/           repeat symbols, and other answers of several tokens
state_tracking/    follow a state that every token may change
stacks/            brackets, and strings that are written behind their input
text/              language
environments/      tasks of agents

Shared code is in `_*.py`.
"""
