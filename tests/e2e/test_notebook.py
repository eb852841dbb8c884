"""The notebook's cells but the install, in their order, with the demo's tiny model."""

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

from tests import demo

pytestmark = pytest.mark.e2e
NOTEBOOK = demo.ROOT / "examples/gsm8k_on_one_gpu.ipynb"
RECIPE = '"qwen2.5-0.5b"'


def code_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source, variables):
    """Run a cell as a kernel does; returns what it printed."""
    if source.startswith("%%bash\n"):
        script = source.partition("\n")[2]
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, str(NOTEBOOK), "exec"), variables)
    return printed.getvalue()


def test_it_is_a_notebook_of_ten_cells_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert len(code_cells()) == 10
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
def test_every_cell_runs(tmp_path, monkeypatch):
    demo.write_recipe(tmp_path, demo.NUM_ROWS, demo.SHORT)
    for name in demo.OUTER:
        monkeypatch.delenv(name, raising=False)
    given = {"VENV": f"{tmp_path}/venv", "PY": sys.executable, "OMP_NUM_THREADS": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(NOTEBOOK.parent)
    before, variables, printed = dict(os.environ), {}, ""
    first, install, *others = code_cells()
    command = install.removeprefix("%%bash\n")  # it would change the environment of the tests
    assert command in (demo.ROOT / "README.md").read_text(encoding="utf-8")
    assert RECIPE in first and '"runs/gsm8k"' in first
    first = first.replace(RECIPE, repr(f"{tmp_path}/tiny-cpu"))
    first = first.replace('"runs/gsm8k"', repr(f"{tmp_path}/run"))
    try:
        for source in (first, *others):
            printed = run_cell(source, variables)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert "on held_out" in printed
    assert (tmp_path / "run/report/report.html").is_file()
