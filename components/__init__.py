"""Interchangeable components, one file each.  A file in the subfolder of its kind is registered automatically.

    update_rules/   how a token updates the fast weights
    attention/      how softmax reads the tokens of its window
    timings/        when a token enters which memory, and for how long
    mixers/         how the outputs of the two memories are combined
    positions/      how softmax attention encodes token positions
    feature_maps/   the map applied to queries and keys before the fast weights

The `_base.py` of a subfolder defines the interface of its components; `hqlt check KIND NAME` tests a component against
it.  The folder is installed and imported as `hqlt_lab.components` (see setup.py).
"""

assert __name__ == "hqlt_lab.components", "import hqlt_lab.components, never the bare folder name"
