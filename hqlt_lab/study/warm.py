"""What the server imports once, so that the workers it forks are ready at once."""

import atexit
import os

import hqlt_lab.study.worker
import hqlt_lab.train.fit  # noqa: F401

# Taking down all these libraries takes a second or two, and there is nothing to take down: a server that is not needed
# any more leaves at once.
atexit.register(os._exit, 0)
