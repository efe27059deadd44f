"""What the numbers look like: one file per figure, each a function of the report's material.  None: nothing to draw.

style               one look for all of them; drawing that other threads do not disturb
material            what is drawn: which arms, in which colour, at which step of the crossed levels
picture             a figure with its title and how to read it; as SVG and as PNG
learning_curves     how it was learned
forest              what differs from the baseline
long_context        what happens beyond what was trained
heat_map            a grid at a glance
by_length           where it ends to hold
cost_quality        what quality costs
who_does_the_work   the fast weights' share, and what is left without either memory
draw                all of them
"""
