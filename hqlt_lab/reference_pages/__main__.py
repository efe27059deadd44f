"""`python -m hqlt_lab.reference_pages FOLDER`: write the reference pages into a folder."""

import sys
from pathlib import Path

from hqlt_lab.reference_pages.page_index import write_pages

for page in write_pages(Path(sys.argv[1])):
    print(page)
