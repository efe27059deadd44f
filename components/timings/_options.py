"""The option `sinks` of all timings: tokens at the start of a document that softmax always sees.

Trained models often put unneeded attention on the first tokens, and fail when these leave the window.

Xiao et al. 2023, arXiv:2309.17453.
"""

from typing import Annotated

Sinks = Annotated[int, "Number of first tokens of a document that softmax always sees, in addition to the window."]
