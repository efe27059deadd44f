"""The interchangeable parts, one file each: dropping a file on a shelf registers it.

    update_rules/   how a token changes the fast weights
    timings/        when a token enters which memory, and for how long
    mixers/         how the two memories' answers become one
    positions/      how softmax knows where a token stood
    feature_maps/   what the fast weights see of a query or a key

A shelf's `_base.py` states the contract of its parts; `hqlt check KIND NAME` proves a part against it.
"""

assert __name__ == "hqlt_lab.components", "import hqlt_lab.components, never the bare folder name"
