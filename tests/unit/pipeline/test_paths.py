"""One folder, however its path is written; what leads nowhere or is not ours is refused."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from pipeline import lock
from pipeline import request as requests
from pipeline.errors import UserError
from pipeline.folders import REPOSITORY, check_output
from pipeline.settings import parse, read_settings
from stages.arguments import SFT, SftArguments
from tests.refused import refused


@dataclass
class Arguments:
    output_dir: str = "out"
    train_file: str = ""
    title: str = ""
    checkpoints: list[str] = field(default_factory=list)
    sources: list[dict] = field(default_factory=list)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "mine").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def read(tmp_path, *words, own=Arguments, hf=(), **keys):
    (tmp_path / "stage.yaml").write_text(yaml.safe_dump(keys))
    return read_settings(own, hf, ["--config", str(tmp_path / "stage.yaml"), *words])


def test_the_home_folder_is_meant_by_a_tilde_wherever_a_path_is(tmp_path, home):
    settings = read(
        tmp_path, "--train_file", "~/d.jsonl", output_dir="~/mine/x", title="~ 5 minutes",
        checkpoints=["base=~/m", "hub=owner/name"], sources=[{"path": "~/d.jsonl"}],
    )  # fmt: skip
    assert settings.output_dir == f"{home}/mine/x" and settings.title == "~ 5 minutes"
    assert settings.train_file == f"{home}/d.jsonl"
    assert settings.checkpoints == [f"base={home}/m", "hub=owner/name"]
    assert settings.sources == [{"path": f"{home}/d.jsonl"}]
    settings = read(tmp_path, "--run_dir=~/run", output_dir="{run}/sft")
    assert settings.output_dir == f"{home}/run/sft"


@pytest.mark.parametrize(
    "written", ["~/mine/x", "../home/mine/x", "link/x", "same", "{home}/./mine//x/"]
)
def test_a_folder_has_one_owner_however_its_path_is_written(tmp_path, home, written):
    (home / "mine" / "x").mkdir()
    Path("link").symlink_to(home / "mine")
    Path("same").symlink_to(home / "mine" / "x")
    words = ["--output_dir", written.format(home=home)]
    with FileLock(home / "mine" / "x.lock"), pytest.raises(UserError, match="in use by another"):
        parse("", Arguments, argv=words, owns="output_dir")
    assert not Path("~").exists()


@pytest.mark.parametrize("path", ["/scratch/$USER/x", "$HOME/x", "a/${X}"])
@pytest.mark.parametrize("key", ["output_dir", "train_file"])
def test_a_variable_in_a_path_is_refused(tmp_path, key, path):
    refused(rf"{key}: .*not expanded", read, tmp_path, **{key: path})
    refused("path: ", read, tmp_path, sources=[{"path": path}])
    assert read(tmp_path, title=path).title == path  # no path
    Path("$USER", "a$b").mkdir(parents=True)  # a folder of that very name
    assert read(tmp_path, **{key: "$USER/a$b/new$1"})[key] == "$USER/a$b/new$1"


@pytest.mark.parametrize(
    ("kind", "place"),
    [("missing disk", "runs"), ("missing disk", "runs/x/sft"), ("circle", "runs/x/sft")],
)
def test_a_link_that_leads_nowhere_is_refused_and_nothing_made_behind_it(tmp_path, kind, place):
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).symlink_to(tmp_path / "disk" if kind == "missing disk" else Path(place).name)
    for own, hf in ((Arguments, ()), (SftArguments, SFT)):
        refused(r"output_dir: .*is a link", read, tmp_path, own=own, hf=hf, output_dir="runs/x/sft")
    refused("is a link", lock.claim, "runs/x/sft")
    assert not (tmp_path / "disk").exists()


def test_a_run_behind_a_link_that_leads_nowhere_is_refused_at_once(tmp_path):
    Path("runs").symlink_to(tmp_path / "disk")
    refused(r"run: .*is a link", requests.read, ["grpo", "RUN=runs/x"], {})


@pytest.mark.parametrize(
    "folder",
    [
        "", " ", None, ".", "..", "/", "/dev/null", "file", "~", "~/mine", "link", "a/..",
        str(REPOSITORY), str(REPOSITORY.parent),
    ],
)  # fmt: skip
def test_a_place_that_is_not_a_stage_s_own_is_refused(home, monkeypatch, folder):
    monkeypatch.chdir(home / "mine")
    Path("file").touch()
    Path("link").symlink_to(home)
    with pytest.raises(UserError, match=r"^output_dir: ") as error:
        check_output(folder, "output_dir")
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in Path().iterdir()) == ["file", "link"]


@pytest.mark.parametrize("folder", ["run", "runs/x/sft", "~/other", "../beside", "link/elsewhere"])
def test_a_folder_of_its_own_is_not(home, folder):
    Path("link").symlink_to(home)
    check_output(folder, "output_dir")
    assert not Path(folder).expanduser().exists()
