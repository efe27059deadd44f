"""What the server imports once, so that the workers it forks are ready at once."""

import atexit
import gc
import importlib
import os

from hqlt_lab.registry import KINDS, open_shelf

for module in ("hqlt_lab.train.fit", "hqlt_lab.study.worker"):
    importlib.import_module(module)
for kind in KINDS:
    open_shelf(kind)  # but no part from outside: what is wrong with one must not harm the server
# What was imported stays, so no worker need look for garbage in it: looking would copy every page it shares.
gc.collect()
gc.freeze()
# Taking down all these libraries takes a second or two, and there is nothing to take down: a server that is not needed
# any more leaves at once.
atexit.register(os._exit, 0)
