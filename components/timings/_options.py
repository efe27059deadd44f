"""The option `sinks` of all timings: tokens at the start of a document that softmax always sees.

A model without them may need the first tokens as a place for attention that no token should get, and fails when they
leave the window.  Xiao et al. 2023, arXiv:2309.17453.
"""

from typing import Annotated

Sinks = Annotated[int, "First tokens of each document that softmax always sees, outside of the window too."]
