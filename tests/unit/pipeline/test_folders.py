"""Folders that no stage may write to."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.folders import REPOSITORY, check_output


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder within a home folder, both empty but for a file."""
    (tmp_path / "home/mine").mkdir(parents=True)
    (tmp_path / "home/mine/file").touch()
    (tmp_path / "home/mine/link").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home/mine")
    return tmp_path


@pytest.mark.parametrize(
    "folder",
    [
        "", " ", None, ".", "./", "..", "../..", "/", "/dev/null", "file", "~", "~/", "~/mine",
        "link", "a/..", str(REPOSITORY), str(REPOSITORY.parent),
    ],
)  # fmt: skip
def test_a_place_that_is_not_a_stage_s_own_is_refused(here, folder):
    with pytest.raises(UserError, match=r"^output_dir: ") as error:
        check_output(folder, "output_dir")
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in Path().iterdir()) == ["file", "link"]


@pytest.mark.parametrize("folder", ["run", "runs/x/sft", "~/other", "../beside", "link/elsewhere"])
def test_a_folder_of_its_own_is_not(here, folder):
    check_output(folder, "output_dir")
    assert not Path(folder).expanduser().exists()
