"""Every number has a range, in every command, and no secret is taken or written."""

import json
import math

import pytest

from data_prep.builder.recipe import Source
from pipeline import manifest
from pipeline import settings as config
from pipeline.errors import UserError
from pipeline.key_types import known_keys
from pipeline.settings import read_settings
from pipeline.values import RANGES, fault, redact
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from tests.settings import classes_of

COMMANDS = (
    "data_prep.builder.__main__", "stages.tiny_model", "stages.sft", "stages.difficulty",
    "stages.distill", "stages.grpo", "stages.sweep", "stages.preflight.__main__",
    "stages.preflight.plan", "eval.run", "eval.report.__main__", "eval.audit.__main__", "eval.push",
)  # fmt: skip
# Any finite number is fine: weights may be negative, levels are a data set's own.
ANY = {
    "reward_weights", "entropy_coef", "entropy_coef_min", "entropy_coef_max", "local_rank",
    "min_level", "max_level",
}  # fmt: skip


def all_keys():
    """`(name, Key)` of all commands."""
    found = [*known_keys(Source).items()]
    for command in COMMANDS:
        found += known_keys(*classes_of(command)).items()
    return found


def is_refused(name, key, value):
    try:
        config.convert(name, value, key, "x")
    except UserError:
        return True
    return False


def test_every_default_fits_and_every_number_has_a_range():
    keys = all_keys()
    for name, key in keys:
        assert key.default in (None, config.UNSET) or not is_refused(name, key, key.default), name
    numbers = [(name, key) for name, key in keys if {"int", "float"} & key.kinds]
    assert RANGES.keys() | ANY <= {name for name, _ in numbers}
    for name, key in numbers:
        assert is_refused(name, key, math.nan) and is_refused(name, key, -math.inf), name
        assert name in ANY or is_refused(name, key, -9) or is_refused(name, key, 9), name


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("learning_rate", (0, "1e-6"), (-1, "nan", "inf", 10**400)),
        ("max_steps", (-1, 1), (0, -2)),
        ("max_grad_norm", (0, "inf"), (-1, "nan")),
        ("adam_beta2", (0, 0.999), (1,)),
        ("seed", (0, 2**32 - 1), (-1, 2**32, 10**400)),
        ("reward_weights", ([1.0, -1.0],), (["nan", 1],)),
        ("generation_kwargs", ({"top_k": 5},), ({"top_k": -5}, {"a": {"top_p": 1.5}})),
    ],
)
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
        with pytest.raises(UserError, match=r": \w+: ") as error:
            read(value)
        assert "\n" not in str(error.value)


URL = "http://user:pl4nted@host/v1"


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("hub_token: pl4nted", []),
        ("", ["--hub_token", "pl4nted"]),
        ("env: {HF_TOKEN: pl4nted}", []),
        ("env: {My_Api_Key: pl4nted}", []),
        ("model_init_kwargs: {token: pl4nted}", []),
        (f"vllm_server_base_url: {URL}", []),  # TRL's arguments are in every checkpoint
        ("", ["--train_file", URL]),
        ("", [f"--train_file={URL}?api_key=pl4nted"]),
    ],
)
def test_secrets_are_refused_and_not_repeated(tmp_path, text, argv):
    path = tmp_path / "grpo.yaml"
    path.write_text(f"train_file: a\n{text}\n")
    with pytest.raises(UserError) as error:
        read_settings(GrpoArguments, GRPO, ["--config", str(path), *argv], DEFAULTS)
    assert "pl4nted" not in str(error.value) and "\n" not in str(error.value)


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
