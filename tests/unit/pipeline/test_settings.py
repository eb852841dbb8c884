"""The configuration: what beats what, typed values, and every mistake answered in one line."""

import math
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from pipeline import settings as config
from pipeline.errors import UserError
from pipeline.key_types import Key
from pipeline.settings import parse
from pipeline.values import Share


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


@pytest.mark.parametrize("flags", [["--seed", "null"], ["--seed=null"]])
def test_null_gives_a_key_its_default_again(parse_text, flags):
    assert parse_text("seed: 3", *flags).seed == parse_text("seed:").seed == 0
    assert parse_text("limit: null").limit is None  # a value of its own, as for `max_length`


@pytest.mark.parametrize(
    ("annotation", "value", "typed"),
    [
        (int, 2e1, 20),
        (float, "1e-4", 1e-4),
        (bool, "Yes", True),
        (bool | None, 0, False),
        (list[str] | None, "a", ["a"]),
        (list[float] | None, ["1", 2], [1.0, 2]),
        (dict[str, Any] | None, {"a": 1}, {"a": 1}),
        (str | dict | None, "easy", "easy"),
    ],
)
def test_values_are_typed(annotation, value, typed):
    found = config.convert("x", value, Key(annotation), "a.yaml")
    assert found == typed and type(found) is type(typed)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 1.5), (int, "one"), (int, True), (int, math.inf), (int, 2**32), (float, "quick"),
        (float | None, [5]), (float, False), (bool, "maybe"), (bool, 2), (str, 5), (str, True),
        (list[str], [5]), (list[dict], "a"), (dict | str | None, 5), (Literal["a"], "b"),
        (Share, 1.1),
        (list[Literal["a"]], ["a", "b"]), (dict[str, int], {"a": "\n"}),
    ],
)  # fmt: skip
def test_values_that_are_refused(annotation, value):
    with pytest.raises(UserError, match=r"^a\.yaml: x: must ") as error:
        config.convert("x", value, Key(annotation), "a.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], True), (["null"], None), (["1e-5"], 1e-5), (["true"], True), (["off"], False),
        (["[a, b]"], ["a", "b"]), (['{"a": 1}'], {"a": 1}), (["'1'"], "1"), (["1", "2"], [1, 2]),
        (["a: b"], "a: b"), (["a #b"], "a #b"), (["*a"], "*a"), (["{"], "{"), ([""], ""),
        (["~"], "~"), (["2024-01-31"], "2024-01-31"), (["12e4567abc"], "12e4567abc"),
    ],
)  # fmt: skip
def test_a_word_of_the_command_line_is_yaml(words, value):
    found = config.value_of(words, None)
    assert found == value and type(found) is type(value)
    if words and words != ["null"] and isinstance(value, int | float):  # a folder's name
        assert config.value_of(words, Key(str)) == words[0]


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        ("output_dir: a\nsede: 1\n", [], r"stage\.yaml: unknown key 'sede'; did you mean 'seed'"),
        ("output_dir: a\n", ["--sede", "1"], "command line: unknown key 'sede'"),
        ("seed: 1\n", [], r"stage\.yaml: missing key 'output_dir'"),
        ("output_dir: a\nseed: one\n", [], r"stage\.yaml: seed: .*'one'"),
        ("output_dir: a\nrate: 2\n", [], r"stage\.yaml: rate: 2"),
        ("output_dir: a\nenv: 5\n", [], "env: must be a valid dictionary"),
        ("- a\n", [], "must be a mapping"),
        ("", ["--config", "none.yaml"], r"none\.yaml: no such config file"),
        ("", ["--config", "a", "b"], "--config takes one path"),
    ],
)
def test_mistakes(write, text, argv, words):
    with pytest.raises(UserError, match=words) as error:
        parse("doc", Arguments, argv=[*write(text), *argv])
    assert "\n" not in str(error.value)


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
    with pytest.raises(raised) as found:
        config.build(settings, Arguments, ("SFTConfig",))
    if raised is UserError:
        assert "\n" not in str(found.value) and "this" in str(found.value)


STARTS = {
    "model_name_or_path: a/b\n": ("m y", None),
    "model_name_or_path: '{run}/base'\n": ("m y", None),
    "model_name_or_path: '{run}/sft'\n": ("runs/recipe/sft", None),
    "{}": ("m y", None),
    "model_name_or_path: a/b\ncheckpoints: [base=a/b, 'sft={run}/sft', x=a/b]\n": (
        "m y", ["base=m y", "sft=runs/recipe/sft", "x=a/b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", STARTS)
def test_a_model_to_start_from_takes_the_place_of_the_recipe_s(write, text):
    @dataclass
    class Stage:
        model_name_or_path: str
        checkpoints: list[str] | None = None

    start = parse("doc", Stage, argv=[*write(text), "--model", "m y"])[0]
    assert (start.model_name_or_path, start.checkpoints or None) == STARTS[text]
    argv = [*write(text), "--model", "m y", "--model_name_or_path", "n"]
    assert parse("doc", Stage, argv=argv)[0].model_name_or_path == "n"
    with pytest.raises(UserError, match="unknown key 'model'"):  # by a stage that reads no model
        parse("doc", Arguments, argv=[*write("output_dir: a\n"), "--model", "m y"])
