"""The YAML files of recipes: where they are, and what a file takes from another recipe.

`extends: grpo7b` in `configs/mine/grpo.yaml` takes every key of `configs/grpo7b/grpo.yaml` that the
file does not give itself. A list or mapping is taken or replaced as a whole. `null` gives a key its
default again. The file of the other recipe may extend a third one.
"""

from collections import ChainMap
from pathlib import Path
from typing import Any

from pipeline import strict_yaml
from pipeline.errors import UserError
from pipeline.names import nearest
from pipeline.stages import RECIPES, has_file, is_for_scoring

EXTENDS = "extends"
MAX_FILES = 3  # a file, one that it extends, and one that this extends

Layer = tuple[str, dict[str, Any]]  # a file, and the keys that it gives itself


def find_config(name: str) -> str:
    """A file or folder of configs/ here, or of the installed package where it is not here."""
    here = Path("configs", name)
    return str(here if here.exists() or not (RECIPES / name).exists() else RECIPES / name)


def find_recipe(name: str) -> str:
    """The folder of a recipe: one of configs/, one of the package's, or any folder.

    Raises:
        UserError: no recipe of this name, with the nearest one.
    """
    short = name.rstrip("/").removeprefix("configs/")
    for place in (find_config(short), name.rstrip("/")):
        if has_file("data", place) or is_for_scoring(place):
            return place
    raise unknown_recipe(name)


def unknown_recipe(name: str, where: str = "RECIPE") -> UserError:
    """The error for a name that no recipe has, with the nearest one; begins with `where`."""
    short, known = name.rstrip("/").removeprefix("configs/"), known_recipes()
    near = nearest(short, known)
    remedy = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
    return UserError(f"{where}: no recipe in configs/{short}; {remedy}")


def known_recipes() -> list[str]:
    """The recipes of configs/ here, and those of the package."""
    found = [path.parent for one in (Path("configs"), RECIPES) for path in one.glob("*/*.yaml")]
    return sorted(
        {one.name for one in found if has_file("data", str(one)) or is_for_scoring(str(one))}
    )


def read_yaml(path: str, run_dir: str = "{run}") -> dict[str, Any]:
    """The keys of a YAML file and of those that it extends; raises `UserError` as `read_layers`."""
    return merged(read_layers(path, run_dir))


def merged(layers: list[Layer]) -> dict[str, Any]:
    """The keys of all layers; an earlier layer overrides a later one."""
    return dict(ChainMap(*(keys for _, keys in layers)))


def read_layers(path: str, run_dir: str = "{run}") -> list[Layer]:
    """A YAML file, then the one that it extends, and so on; an earlier one overrides a later one.

    Args:
        run_dir: replaces `{run}` in keys and values.

    Raises:
        UserError: no such file, no mapping, or a fault in `extends`; names the file.
    """
    layers: list[Layer] = []
    at = path
    while True:
        if not Path(at).is_file():
            raise UserError(f"{at}: no such config file; recipes are in configs/<recipe>/")
        said = strict_yaml.read(at, run_dir)
        if not isinstance(said, dict):
            raise UserError(f"{at}: must be a mapping `key: value`, found {type(said).__name__}")
        name = said.pop(EXTENDS, None)
        layers.append((at, said))
        if name is None:
            return layers
        at, read = extended_file(at, name), [file for file, _ in layers]
        chain = " -> ".join([*read, at])
        if at in read:
            raise UserError(f"{path}: {EXTENDS}: a cycle, {chain}; take one out")
        if len(layers) == MAX_FILES:
            fault = f"at most {MAX_FILES - 1} deep, found {chain}"
            raise UserError(f"{path}: {EXTENDS}: {fault}; copy the keys of the last one")


def extended_file(path: str, name: Any) -> str:
    """The file of the same name in the recipe that a file extends.

    The recipe is looked for beside the file's own, then as RECIPE is. A file does not find itself:
    a `grpo7b` of one's own extends the one of the package.
    """
    where = f"{path}: {EXTENDS}"
    if not isinstance(name, str) or not name:
        raise UserError(f"{where}: must be a recipe, such as grpo7b, found {name!r}")
    own = Path(path)
    folders = [own.parent.parent / name, Path("configs", name), RECIPES / name, Path(name)]
    for file in (folder / own.name for folder in folders):
        if file.is_file() and not file.samefile(own):
            return str(file)
    if any(folder.is_dir() for folder in folders):
        raise UserError(f"{where}: {name} has no other {own.name}; name another recipe")
    raise unknown_recipe(name, where)


def files_of(recipe: str) -> list[str]:
    """The YAML files that a recipe's stages read: its own, and those that they extend."""
    found: dict[str, None] = {}  # in order, each once
    for path in map(str, sorted(Path(recipe).glob("*.yaml"))):
        found[path] = None
        try:
            found |= dict.fromkeys(file for file, _ in read_layers(path))
        except UserError:  # the stage says what is wrong
            continue
    return list(found)
