"""Imports that the forkserver does once, so that the workers forked from it start without delay."""

import atexit
import importlib
import os

from hqlt_lab.process_settings import freeze_imported_objects
from hqlt_lab.registry import KINDS, import_builtin

for module in ("hqlt_lab.train.fit", "hqlt_lab.study.executors.worker"):
    importlib.import_module(module)
for kind in KINDS:
    import_builtin(kind)  # but no component files of the user: an error in one of them must not break the server
freeze_imported_objects()
# The usual shutdown of all these libraries takes a second or two and has nothing to clean up, so skip it.
atexit.register(os._exit, 0)
