"""The configuration: what beats what, typed values, and every mistake answered in one line."""

import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from pipeline import settings as config
from pipeline.errors import UserError, run_cli
from pipeline.settings import COMMAND_LINE, HF_SOURCES, Key, parse  # fmt: skip


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
        ("int", "2e1", 20),
        ("int", 5.0, 5),
        ("float", "1e-4", 1e-4),
        ("bool", "Yes", True),
        ("bool | None", 0, False),
        ("str", False, "off"),
        ("list[str] | None", "a", ["a"]),
        ("list[float] | None", ["1", 2], [1.0, 2]),
        ("list[dict]", [{"a": 1}], [{"a": 1}]),
        ("IntervalStrategy | str", False, "no"),
        ("SchedulerType | str", "cosine", "cosine"),
        ("dict | None", '{"a": [1]}', {"a": [1]}),  # of a command line
        ("dict[str, Any] | None", {"a": 1}, {"a": 1}),
        ("str | dict | None", "easy", "easy"),  # of our own keys
    ],
)
def test_values_are_typed(annotation, value, typed):
    found = config.convert("x", value, Key(annotation, is_own=True), "a.yaml")
    assert found == typed and type(found) is type(typed)


@pytest.mark.parametrize(
    ("annotation", "value", "where"),
    [
        ("int", 1.5, "file"), ("int", "one", "file"), ("int", True, "file"), ("int", [1], "file"),
        ("int", float("nan"), "file"), ("int", float("inf"), "file"), ("float", "quick", "file"),
        ("float", {"a": 1}, "file"), ("float | None", [5], "file"), ("bool", "maybe", "file"),
        ("bool", 2, "file"), ("str", 5, "file"), ("str", ["a"], "file"),
        ("str", True, COMMAND_LINE),
        ("list[str]", "a", "file"), ("list[str]", [5], "file"), ("list[float]", ["a"], "file"),
        ("list[dict]", "a", COMMAND_LINE), ("SchedulerType | str", "bogus", "file"),
        ("SaveStrategy | str", True, "file"), ("dict | str | None", 5, "file"),
        ("dict | None", "x", "file"), ("dict | None", "[1]", COMMAND_LINE),
        ("dict | None", "", COMMAND_LINE), ("dict | None", "{", COMMAND_LINE),
        ("int", 2**32, "file"), ("int", "1e30", COMMAND_LINE),
    ],
)  # fmt: skip
def test_values_that_are_refused(annotation, value, where):
    with pytest.raises(UserError, match=f"^{where}: x: ") as error:
        config.convert("x", value, Key(annotation, is_own=True), where)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        ("output_dir: a\nsede: 1\n", [], r"stage\.yaml: unknown key 'sede'; did you mean 'seed'"),
        ("output_dir: a\n", ["--sede", "1"], "command line: unknown key 'sede'"),
        ("seed: 1\n", [], r"stage\.yaml: missing key 'output_dir'"),
        ("output_dir: a\nseed: one\n", [], r"stage\.yaml: seed: 'one'"),
        ("output_dir: a\nrate: 2\n", [], r"stage\.yaml: rate: 2"),
        ("output_dir: a\nenv: 5\n", [], "env: 5 is not a mapping"),
        ("output_dir: [\n", [], r"stage\.yaml:2: not valid YAML"),
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


@pytest.mark.parametrize("end", [UserError("seed: 'x'"), KeyboardInterrupt()])
def test_run_cli_ends_in_one_line(capsys, end):
    def main():
        raise end

    with pytest.raises(SystemExit) as done:
        run_cli(main)
    is_user = isinstance(end, UserError)
    assert done.value.code == (2 if is_user else 130)
    assert capsys.readouterr().err.strip().count("\n") == 0


def test_hugging_faces_keys_are_read_without_importing_torch():
    code = (
        "import sys; from pipeline.settings import read_settings\n"
        "from stages.arguments import GRPO, GrpoArguments\n"
        "settings = read_settings(GrpoArguments, GRPO, ['--train_file', 'x'])\n"
        "assert (settings.num_generations, settings.save_strategy) == (8, 'steps')\n"
        "assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", HF_SOURCES)
def test_every_annotation_of_hugging_face_is_understood(name):
    kinds = ("bool", "int", "float", "str", "None", "dict", "list", "Literal", "Any")
    for key in config.hf_keys(name).values():
        for member in key.members:
            is_class = member.endswith(("Strategy", "Type", "Names", "Config"))
            assert member.startswith(kinds) or is_class, key


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("SFTConfig", "loss_type", "x"),
        ("SFTConfig", "packing_strategy", "bfd-requeue"),
        ("GRPOConfig", "ddp_backend", "x"),
        ("ModelConfig", "dtype", "bfloat61"),
    ],
)
def test_choices_of_hugging_face_s_sources_are_read(name, key, value):
    known = config.hf_keys(name)[key]
    assert config.convert(key, known.choices[0], known, "file") == known.choices[0]
    with pytest.raises(UserError, match=f"^file: {key}: .* one of {known.choices[0]}"):
        config.convert(key, value, known, "file")


@pytest.mark.parametrize("error", [TypeError, KeyError, RuntimeError, OSError])
def test_whatever_hugging_face_s_classes_raise_is_one_line(monkeypatch, error):
    @dataclass
    class Config:
        seed: int = 0

        def __post_init__(self):
            raise error("not\nthis")

    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(SFTConfig=Config))
    settings = config.read_settings(Arguments, ("SFTConfig",), ["--output_dir", "a"])
    with pytest.raises(UserError) as raised:
        config.build(settings, Arguments, ("SFTConfig",))
    assert "\n" not in str(raised.value) and "this" in str(raised.value)


@pytest.mark.parametrize(
    ("error", "text"), [(MemoryError, ""), (RuntimeError, "[gloo] connectFullMesh failed")]
)
def test_a_machines_error_stays_what_it_is(monkeypatch, error, text):
    @dataclass
    class Config:
        def __post_init__(self):
            raise error(text)

    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(SFTConfig=Config))
    settings = config.read_settings(Arguments, ("SFTConfig",), ["--output_dir", "a"])
    with pytest.raises(error):
        config.build(settings, Arguments, ("SFTConfig",))


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
