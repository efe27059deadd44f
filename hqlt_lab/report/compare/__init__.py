"""Two or more things side by side, the first is what the others are compared with.

subject       what can be compared: trained cells, and studies
section       one part of a comparison: sentences, a table, the same for programs
settings      where their settings differ
code          where the code differs that made them
results       what came of them
two_samples   the difference of two means
published     an experiment against what was published
comparison    all of it
"""
