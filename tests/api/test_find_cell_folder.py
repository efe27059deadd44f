"""Folders of cells are found by key, by the beginning of a key, or by path; of several folders the best is used."""

import os

import pytest

from hqlt_lab.api import find_cell_folder
from hqlt_lab.errors import StoreError

KEY = "3f2c91aa00000000"


def make_cell_folder(runs, path, is_finished, time):
    """Write the files of a cell that are needed to find it."""
    folder = runs / path
    folder.mkdir(parents=True)
    (folder / "cell.json").write_text("{}")
    os.utime(folder / "cell.json", (time, time))
    if is_finished:
        (folder / "outcome.json").write_text("{}")
    return folder


def test_of_a_cell_in_several_studies_the_finished_folder_is_used(tmp_path):
    finished = make_cell_folder(tmp_path, f"studies/a/cells/{KEY}", is_finished=True, time=100)
    make_cell_folder(tmp_path, f"studies/b/cells/{KEY}", is_finished=False, time=200)
    assert find_cell_folder(KEY, tmp_path) == find_cell_folder(KEY[:6], tmp_path) == finished


def test_of_several_finished_folders_the_newest_is_used(tmp_path):
    newest = make_cell_folder(tmp_path, f"studies/a/cells/{KEY}", is_finished=True, time=200)
    make_cell_folder(tmp_path, f"studies/b/cells/{KEY}", is_finished=True, time=100)
    assert find_cell_folder(KEY, tmp_path) == newest


def test_a_beginning_that_fits_several_cells_is_an_error(tmp_path):
    for key in (KEY, KEY[:-1] + "1"):
        make_cell_folder(tmp_path, f"studies/a/cells/{key}", is_finished=True, time=100)
    with pytest.raises(StoreError, match=rf"^2 trained cells .*{KEY}.*{KEY[:-1]}1"):
        find_cell_folder(KEY[:6], tmp_path)
