"""Execute notebook cells as IPython does: in one module without a file, with the text of each cell in `linecache`."""

import hashlib
import linecache
import sys
from types import ModuleType


class FakeNotebook:
    """A module in which cells are executed. Remove it with `close`."""

    def __init__(self) -> None:
        self.module, self.files = ModuleType("notebook_of_a_test"), set[str]()
        sys.modules[self.module.__name__] = self.module

    def run_cell(self, text: str) -> None:
        """Execute a cell. Equal cells have the same file name, as in IPython."""
        file = f"/nonexistent/ipykernel_1/{hashlib.sha256(text.encode()).hexdigest()[:10]}.py"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        self.files.add(file)
        exec(compile(text, file, "exec", dont_inherit=True), vars(self.module))

    def close(self) -> None:
        del sys.modules[self.module.__name__]
        for file in self.files:
            linecache.cache.pop(file, None)
