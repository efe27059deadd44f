"""Write the pages into a folder."""

import sys
from pathlib import Path

from hqlt_lab.reference.pages import write

for page in write(Path(sys.argv[1])):
    print(page)
