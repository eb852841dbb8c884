"""The configuration: what beats what, typed values in their range, mistakes in one line."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal  # noqa: F401 - a table names them

import pytest

from data_prep.builder.recipe import DataArguments, Source, check_source
from data_prep.sampling.problems import ProblemSetArguments
from eval.harness.settings import EvalArguments
from pipeline import manifest
from pipeline import settings as config
from pipeline.errors import UserError
from pipeline.key_types import Key, known_keys
from pipeline.renamed import REMOVED, RENAMED, hint
from pipeline.settings import parse, read_settings
from pipeline.values import RANGES, Share, fault, redact  # noqa: F401 - a table names Share
from stages.arguments import DEFAULTS, GRPO, SFT, GrpoArguments, SftArguments
from stages.distill import DistillArguments
from tests.refused import refused
from tests.settings import classes_of
from tests.tables import read_beside, tables_beside

table = tables_beside(__file__)


@dataclass
class Arguments:
    """A stage with one key of each kind."""

    output_dir: str = field(metadata={"help": "where it goes"})
    seed: int = 0
    rate: float = 0.5
    fast: bool = False
    mode: str = "off"
    limit: int | None = 8
    files: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError(f"rate: {self.rate} must be at most 1")


@pytest.fixture
def write(tmp_path):
    """Function: text -> the flags that name a YAML with it."""

    def call(text):
        path = tmp_path / "recipe" / "stage.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return ["--config", str(path)]

    return call


@pytest.fixture
def parse_text(write):
    """Function: YAML behind `output_dir: a`, and flags -> the arguments."""

    def call(text, *argv):
        return parse("doc", Arguments, argv=[*write(f"output_dir: a\n{text}"), *argv])[0]

    return call


def test_command_line_beats_overlay_beats_file_beats_default(parse_text, tmp_path):
    assert (parse_text("seed: 3").seed, parse_text("").seed) == (3, 0)
    assert parse_text("seed: 3", "--seed", "4").seed == parse_text("", "--seed=4").seed == 4
    overlay = tmp_path / "lora.yaml"
    overlay.write_text("seed: 5\nfast: true\nrate_factor: 10\nlimit: null\n")
    flags = ["--overlay", str(overlay)]
    args = parse_text("seed: 3\nrate: 5.0e-7\nlimit: 2", *flags, "--seed", "4")
    assert (args.seed, args.fast, args.limit) == (4, True, None)
    assert args.rate == 5e-6  # and not 4.9999999999999996e-06
    assert parse_text("rate: 0.1", *flags, "--rate", "0.2").rate == 0.2


def test_run_folder_is_filled_in(parse_text):
    text = 'files: ["{run}/a"]\nmode: "{run}/out"\n'
    assert parse_text(text).files == ["runs/recipe/a"]
    args = parse_text(text, "--run_dir", "elsewhere")
    assert (args.mode, args.files) == ("elsewhere/out", ["elsewhere/a"])


def test_null_gives_a_key_its_default_again(parse_text):
    for flags in (["--seed", "null"], ["--seed=null"]):
        assert parse_text("seed: 3", *flags).seed == parse_text("seed:").seed == 0
    assert parse_text("limit: null").limit is None  # a value of its own, as for `max_length`


@table
def test_values_are_typed(kind, value, typed):
    found = config.convert("x", value, Key(eval(kind)), "a.yaml")
    assert found == typed and type(found) is type(typed)


@table
def test_values_that_are_refused(kind, values):
    for value in values:
        refused(r"^a\.yaml: x: must ", config.convert, "x", value, Key(eval(kind)), "a.yaml")


@table
def test_a_word_of_the_command_line_is_yaml(words, value):
    found = config.value_of(words, None)
    assert found == value and type(found) is type(value)
    if words and words != ["null"] and isinstance(value, int | float):  # a folder's name
        assert config.value_of(words, Key(str)) == words[0]


@table
def test_mistakes(write, text, argv, words):
    refused(words, parse, "doc", Arguments, argv=[*write(text), *argv])


def test_checks_see_given_and_effective_values(write):
    flags = [*write("output_dir: a\nseed: 1\n"), "--seed", "2"]
    seen = []
    parse("doc", Arguments, check=seen.append, argv=flags)
    (settings,) = seen
    assert settings == {"output_dir": "a", "seed": 2} and "rate" not in settings
    assert (settings.seed, settings.rate, settings.files) == (2, 0.5, [])
    with pytest.raises(AttributeError):
        _ = settings.nothing
    assert settings.replaced(rate=0.1).rate == 0.1 and settings.rate == 0.5


def test_help_shows_the_docstring_and_the_keys(capsys):
    with pytest.raises(SystemExit) as done:
        parse("The stage.", Arguments, argv=["--help"])
    out = capsys.readouterr().out
    assert done.value.code == 0
    assert out.startswith("The stage.") and "where it goes" in out and "fast" in out


def test_hugging_faces_keys_are_read_without_importing_torch():
    code = (
        "import sys; from pipeline.settings import read_settings\n"
        "from stages.arguments import GRPO, GrpoArguments\n"
        "settings = read_settings(GrpoArguments, GRPO, ['--train_file', 'x'])\n"
        "assert (settings.num_generations, settings.save_strategy) == (8, 'steps')\n"
        "assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_faults_of_a_file_are_told(write):
    with pytest.raises(UserError) as error:
        parse("doc", Arguments, argv=write("output_dir: a\nseed: x\nrate: y\nfat: 1\n"))
    told = [line.partition("stage.yaml: ")[2].partition(":")[0] for line in error.value.lines]
    assert told == ["seed", "rate", "unknown key 'fat'; did you mean 'fast'?"]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        *[(kind("not\nthis"), UserError) for kind in (TypeError, KeyError, RuntimeError, OSError)],
        (MemoryError(), MemoryError),  # of the machine
        (RuntimeError("[gloo] connectFullMesh failed"), RuntimeError),
    ],
)
def test_what_hugging_face_s_classes_raise_is_one_line(monkeypatch, error, raised):
    @dataclass
    class Config:
        def __post_init__(self):
            raise error

    settings = config.read_settings(Arguments, ("SFTConfig",), ["--output_dir", "a"])
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(SFTConfig=Config))
    if raised is UserError:
        refused("this", config.build, settings, Arguments, ("SFTConfig",))
        return
    with pytest.raises(raised):
        config.build(settings, Arguments, ("SFTConfig",))


@table
def test_a_model_to_start_from_takes_the_place_of_the_recipe_s(write, text, model, checkpoints):
    @dataclass
    class Stage:
        model_name_or_path: str
        checkpoints: list[str] | None = None

    start = parse("doc", Stage, argv=[*write(text), "--model", "m y"])[0]
    assert (start.model_name_or_path, start.checkpoints or None) == (model, checkpoints)
    argv = [*write(text), "--model", "m y", "--model_name_or_path", "n"]
    assert parse("doc", Stage, argv=argv)[0].model_name_or_path == "n"
    argv = [*write("output_dir: a\n"), "--model", "m y"]  # of a stage that reads no model
    refused("unknown key 'model'", parse, "doc", Arguments, argv=argv)


# Ranges

COMMANDS = read_beside(__file__)["commands"]
# Any finite number is fine: weights may be negative, levels are a data set's own.
ANY = {*read_beside(__file__)["any_number"]}


def is_refused(name, key, value):
    try:
        config.convert(name, value, key, "x")
    except UserError:
        return True
    return False


def test_every_default_fits_and_every_number_has_a_range():
    keys = [*known_keys(Source).items()]
    for command in COMMANDS:
        keys += known_keys(*classes_of(command)).items()
    for name, key in keys:
        assert key.default in (None, config.UNSET) or not is_refused(name, key, key.default), name
    numbers = [(name, key) for name, key in keys if {"int", "float"} & key.kinds]
    assert RANGES.keys() | ANY <= {name for name, _ in numbers}
    for name, key in numbers:
        assert is_refused(name, key, math.nan) and is_refused(name, key, -math.inf), name
        assert name in ANY or is_refused(name, key, -9) or is_refused(name, key, 9), name


@table
@pytest.mark.parametrize("place", ["config", "overlay", "command line"])
def test_ranges_hold_wherever_a_value_comes_from(tmp_path, key, good, bad, place):
    def read(value):
        words = map(str, value if type(value) is list else [value])
        argv = ["--train_file", "a", f"--{key}", *words]
        if place != "command line" or isinstance(value, dict):  # which belongs in the YAML
            path = tmp_path / "values.yaml"
            path.write_text(json.dumps({key: value}))
            argv[2:] = [f"--{place.replace('command line', 'config')}", str(path)]
        read_settings(GrpoArguments, GRPO, argv, DEFAULTS).as_trl_types()

    for value in good:
        read(value)
    for value in bad:
        refused(r": \w+: ", read, 10**400 if value == "10**400" else value)


# Secrets

URL = "http://user:pl4nted@host/v1"


@table
def test_secrets_are_refused_and_not_repeated(tmp_path, text, argv):
    path = tmp_path / "grpo.yaml"
    path.write_text(f"train_file: a\n{text}\n")
    argv = ["--config", str(path), *argv]
    assert "pl4nted" not in refused(": ", read_settings, GrpoArguments, GRPO, argv, DEFAULTS)


def test_a_password_is_never_written(tmp_path):
    manifest.write(
        tmp_path, "x", {"a": [URL]}, {URL: "hub"}, {}, 0.0, more=f"see {URL}?token=pl4nted"
    )
    written = (tmp_path / manifest.NAME).read_text()
    assert "pl4nted" not in written and "http://***@host/v1" in written
    assert "pl4nted" not in str(UserError(f"base_url: {URL} is down"))
    plain = 'a@b.c "http://host/x@y?max_new=1" s3://bucket/key'
    assert redact(plain) == plain and redact("http://u:p@ss@h:1/x") == "http://***@h:1/x"
    assert fault("train_file", URL, takes_secret_urls=True) is fault("eos_token", "</s>") is None
    assert fault("env", {"TOKENIZERS_PARALLELISM": "false", "HF_HOME": "x"}) is None


# Keys of other versions and trainers

KEYS = {
    "sft": known_keys(SftArguments, SFT),
    "grpo": known_keys(GrpoArguments, GRPO),
    "difficulty": known_keys(ProblemSetArguments),
    "distill": known_keys(DistillArguments),
    "eval": known_keys(EvalArguments),
    "data": known_keys(DataArguments),
    "source": known_keys(Source),
}


def test_every_hint_names_a_key_that_a_stage_has():
    for name, targets in RENAMED.items():
        for target in targets:
            assert any(target in keys for keys in KEYS.values()), (name, target)
        for keys in KEYS.values():
            first = next((target for target in targets if target in keys), None)
            if first and name not in keys:
                assert hint(name, keys, "").startswith(f"use {first!r}")
    assert not {*REMOVED} & {*RENAMED}
    assert not [name for name in REMOVED for keys in KEYS.values() if name in keys]
    assert all(hint(name, KEYS["grpo"], "") == REMOVED[name] for name in REMOVED)


@table
def test_hints(stage, name, key):
    assert hint(name, KEYS[stage], "").partition(";")[0] == f"use {key!r}"


def test_the_hint_is_given_where_the_key_is_read():
    told = r"unknown key 'torch_dtype'; use 'dtype'$"
    refused(told, read_settings, GrpoArguments, GRPO, ["--torch_dtype", "x"])
    entry = {"name": "gsm8k", "dataset_name": "openai/gsm8k"}
    refused(r"grpo: gsm8k: unknown key 'dataset_name'; use 'hub'$", check_source, entry, "grpo")
