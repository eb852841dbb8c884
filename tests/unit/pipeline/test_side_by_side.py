"""Commands at a time, GPUs and cores of each, and what a failure or a signal ends."""

import os
import signal
import sys
import threading
import time

import pytest

from pipeline import __main__ as front
from pipeline.errors import UserError
from pipeline.side_by_side import Runner, visible_gpus
from tests.refused import refused

SAY = "import os, sys; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('EXTRA'))"


@pytest.mark.parametrize(
    ("said", "gpus"), [("", []), ("-1", []), ("0", ["0"]), ("2, 5", ["2", "5"])]
)
def test_the_visible_gpus(monkeypatch, said, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert visible_gpus() == gpus


def test_each_of_several_has_gpus_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    runner, barrier = Runner(2, 2), threading.Barrier(2)
    found = set()

    def job(number):
        barrier.wait(timeout=20)  # both at a time
        with open(tmp_path / str(number), "w") as file:
            assert runner.run([sys.executable, "-c", SAY], file, EXTRA="x") == 0
        found.add((tmp_path / str(number)).read_text())

    runner.run_all(job, [(0,), (1,)])
    assert len(found) == 2 or found == {"4,5 x\n"}  # the first had ended before the second began
    assert found <= {"4,5 x\n", "6,7 x\n"}


def test_one_alone_has_what_this_process_has(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with open(tmp_path / "out", "w") as file:
        Runner(1, 2).run([sys.executable, "-c", SAY], file)
    assert (tmp_path / "out").read_text() == "4,5,6,7 None\n"


def test_too_few_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    refused(r"parallel: 2 runs of 2 GPUs each, and 3 GPUs .* use 1", Runner, 2, 2)


def test_a_failure_ends_the_others(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    runner, codes = Runner(2), []

    def job(words):
        code = runner.run([sys.executable, "-c", words])
        codes.append(code)
        if code == 3:
            raise UserError("three")

    told = "three"
    refused(told, runner.run_all, job, [("import time; time.sleep(60)",), ("raise SystemExit(3)",)])
    assert sorted(codes) == [-15, 3]


FAIL = ("-c", "import time; time.sleep(0.5); raise SystemExit('it fails')")
SLEEP = ("-c", "import time; print('it sleeps', flush=True); time.sleep(60)")


@pytest.mark.parametrize("words", [(SLEEP, FAIL), (FAIL, SLEEP)])
def test_of_two_stages_the_one_that_fails_ends_the_other(words, capfd):
    with pytest.raises(SystemExit, match="1"):
        front.run(words[0], {}, beside=words[1])
    said = capfd.readouterr()
    assert "it fails" in said.out + said.err
    if words[1] == SLEEP:  # what it said until it was ended is of no use to the user
        assert said.out == ""


def test_a_stage_beside_another_one_speaks_after_it(capfd):
    later = ("-c", "import time; time.sleep(0.5); print('first')")
    front.run(later, {}, beside=("-c", "print('second')"))
    assert capfd.readouterr().out == "first\nsecond\n"


def test_a_signal_ends_both_of_two_stages(tmp_path):
    """As the end of a job does."""
    mark = "open({!r}, 'w').close(); import time; time.sleep(60)"
    files = [tmp_path / "first", tmp_path / "beside"]
    words = [("-c", mark.format(str(file))) for file in files]
    threading.Thread(target=end_when_there, args=(files,)).start()
    with pytest.raises(SystemExit) as ended:
        front.run(words[0], {}, beside=words[1])
    assert ended.value.code == 128 + signal.SIGTERM


def end_when_there(files):
    while not all(file.exists() for file in files):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)
