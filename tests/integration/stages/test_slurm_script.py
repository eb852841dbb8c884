"""The Slurm script with stand-ins for Slurm and for all that it starts: who runs what, and when.

The stand-ins write down their words and give recorded answers. What the real command and the real
parsers make of such words is asked in this process.
"""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from trl.scripts.vllm_serve import ScriptArguments, build_command

from pipeline import commands
from pipeline import request as requests
from pipeline.settings import read_settings
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from tests import demo
from tests.integration.trainer.runs import whole_checkpoints
from tests.pages import commands_of_pages

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "configs/accelerate/slurm.sh"
STAND_IN = Path(__file__).with_name("slurm_stand_in.sh")
JOBS = Path(__file__).with_name("slurm_jobs.yaml")
STAGES = ["data", "audit", "sft", "difficulty", "grpo", "eval", "report"]
MODEL = ["my w", "--logprobs-mode", "raw_logprobs", "--dtype", "float16"]


def read_examples():
    """`(environment, hosts, keys)` of each command of the script's head and of the pages."""
    head = SCRIPT.read_text(encoding="utf-8").partition("#SBATCH")[0].replace("\\\n#", "")
    texts = re.findall(r"(?m)^#   ([A-Z_]+=.*slurm\.sh.*)$", head)
    texts += [one.text for one in commands_of_pages() if SCRIPT.name in one.text]
    found = []
    for text in texts:
        words = shlex.split(text, comments=True)
        env = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        keys = [word for word in words if re.match(r"[a-z]+\.\w+=", word)]
        found.append((env, words[words.index("--nodes") + 1], keys))
    return found


@pytest.fixture
def job(tmp_path):
    """What a job's process is started with: arguments of `subprocess`; some stand-ins are there."""
    log = tmp_path / "log"
    log.write_text("")
    put(tmp_path / "bin", "srun", "scontrol", "curl")
    env = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LOG": str(log), "SLURM_JOB_ID": "12345",
        "SLURM_CPUS_ON_NODE": "96", "SLURM_GPUS_ON_NODE": "8",
    }  # fmt: skip
    return {"cwd": tmp_path, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def put(folder, *names):
    """Put stand-ins into a folder."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(STAND_IN.read_text())
        (folder / name).chmod(0o755)


@pytest.fixture
def run(tmp_path, job):
    """Run the job: its exit code, what it has printed, and the calls of all but srun, in order."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    put(tmp_path / ".venv/bin", "python", "vllm", "ray")

    def call(*words, hosts="n1 n2 n3", left=STAGES, **env):
        (tmp_path / "log").write_text("")
        given = {"SLURM_JOB_NODELIST": hosts, "LEFT": "\n".join(["runs/grpo7b", *left])}
        given |= {"SERVED": "\n".join(MODEL)}
        arguments = job | {"env": job["env"] | given | env, "text": True, "timeout": 120}
        done = subprocess.run(["bash", str(SCRIPT), *words], **arguments)
        calls = [shlex.split(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert all(one[2] == "--cpus-per-task=96" for one in calls if one[0] == "srun")
        return done.returncode, done.stdout, [one for one in calls if one[0] != "srun"]

    return call


def started(calls, stage=None):
    """`(host, words)` of each start of a stage, or of all."""
    found = [(host, words) for name, host, *words in calls if name == "python"]
    return [one for one in found if "--only" in one[1] and stage in (None, one[1][2])]


def served(calls):
    """`(host, words)` of vLLM's server."""
    (found,) = [(host, words) for name, host, *words in calls if [name, *words[:1]] == SERVE]
    return found


SERVE = ["vllm", "serve"]


def launched(words, **env):
    """Accelerate's flags and the stage's words, as the real command launches these."""
    request = requests.read(words[2:], env)
    taken = launch_command_parser().parse_args(commands.only_command(request).words[2:])
    return taken, taken.training_script_args


def test_two_trainers_and_a_server(run):
    keys = ["sft.max_steps=7", "grpo.beta=0.1"]
    code, said, calls = run(*keys, VLLM_HOSTS="1", VLLM_ARGS="--tensor-parallel-size 4")
    assert code == 0, said
    stages = [words[2] for _, words in started(calls)]
    assert list(dict.fromkeys(stages)) == STAGES
    for stage in ("sft", "grpo"):
        for rank, (host, words) in enumerate(sorted(started(calls, stage))):
            taken, own = launched(words)
            assert (host, taken.machine_rank) == (f"n{rank + 1}", rank)
            assert (taken.num_machines, taken.num_processes) == (2, 16)
            # 20000 + 2 x (12345 mod 5000)
            assert (taken.main_process_ip, taken.main_process_port) == ("n1", 24690)
            assert taken.config_file == "configs/accelerate/fsdp2.yaml" and taken.same_network
            assert taken.deepspeed_multinode_launcher == "standard"
            assert taken.training_script == f"stages.{stage}"
        assert rank == 1
        if stage == "sft":
            assert own[-4:] == ["--max_steps", "7", "--dtype", "float32"]
    settings = read_settings(GrpoArguments, GRPO, own, DEFAULTS)
    assert (settings.use_vllm, settings.vllm_mode, settings.vllm_server_host) == (
        True, "server", "n3"
    )  # fmt: skip
    assert (settings.beta, settings.dtype) == (0.1, "float32")
    for stage in STAGES:
        if stage not in ("sft", "grpo"):
            ((host, words),) = started(calls, stage)
            is_on_gpus = stage in ("difficulty", "eval")
            assert host == "n1" and any("ddp.yaml" in word for word in words) is is_on_gpus

    host, server = served(calls)
    assert (host, server[1]) == ("n3", MODEL[0])
    assert server[-3:] == ["--tensor-parallel-size", "4", "1"]  # and vLLM's development mode
    # As TRL would start it, but for what follows the recipe.
    wanted = build_command(ScriptArguments("m", tensor_parallel_size=4))
    for flag in ("--port", "--tensor-parallel-size", "--weight-transfer-config"):
        assert server[server.index(flag) + 1] == wanted[wanted.index(flag) + 1], flag
    assert " ".join(MODEL[1:]) in " ".join(server) and "--enable-scale-out" in server
    assert {one[2] for one in calls if one[0] == "curl"} == {"http://n3:8000/health"}
    assert ["vllm", "n3", "ended"] in calls


def test_without_a_server_all_hosts_train(run):
    code, said, calls = run(ACCELERATE="zero3", RECIPE="rlite")
    assert code == 0, said
    for host, words in started(calls, "grpo"):
        taken, own = launched(words, RECIPE="rlite", LORA="1")
        assert (taken.config_file, taken.num_processes) == ("configs/accelerate/zero3.yaml", 24)
        assert own[:2] == ["--config", "configs/rlite/grpo.yaml"] and "--use_vllm" not in own
        assert "configs/lora.yaml" in own and "--dtype" not in own
        assert host == f"n{taken.machine_rank + 1}"
    assert {one[0] for one in calls} == {"python"}


def test_two_vllm_hosts_are_one_server(run):
    code, said, calls = run(hosts="n1 n2 n3 n4", VLLM_HOSTS="2")
    assert code == 0, said
    ray = {tuple(one[1:]) for one in calls if one[0] == "ray" and one[2] == "start"}
    head = ("n3", "start", "--head", "--port", "6379")
    assert ray == {head, ("n4", "start", "--address", "n3:6379", "--block")}
    host, words = served(calls)
    assert host == "n3" and "--distributed-executor-backend ray" in " ".join(words)
    assert sorted(host for host, _ in started(calls, "grpo")) == ["n1", "n2"]


@pytest.mark.parametrize("code", [0, 2])
def test_a_dry_run_starts_nothing_and_ends_as_preflight_does(run, code):
    for words, hosts in ((["--dry-run"], "n1 n2"), (["--dry-run", "--nodes", "2"], "")):
        found, said, calls = run(*words, hosts=hosts, VLLM_HOSTS="1", PREFLIGHT_CODE=str(code))
        assert found == code and not started(calls) and {one[0] for one in calls} == {"python"}
        lines = [line for line in said.splitlines() if line.startswith("on ")]
        trainer, server = ("n1", "n2") if hosts else ("host-1", "host-2")
        wanted = [f"on {trainer}: python -m pipeline {stage} --only" for stage in STAGES]
        wanted.insert(4, f"on {server}: vllm serve {MODEL[0]} --port")
        for line, start in zip(lines, wanted, strict=True):
            assert line.startswith(start)
        assert f"grpo.vllm_server_host={server}" in lines[5] and "--dtype float16" in lines[4]


EXAMPLES = read_examples()


def test_the_examples_have_one_host_several_and_a_server():
    assert len({nodes for _, nodes, _ in EXAMPLES}) > 1
    assert "1" in [env.get("VLLM_HOSTS") for env, _, _ in EXAMPLES]


@pytest.mark.parametrize(("env", "nodes", "keys"), EXAMPLES)
def test_an_example_passes_preflight(run, fork_server, tmp_path, env, nodes, keys):
    code, said, calls = run("--dry-run", "--nodes", nodes, *keys, **env)
    assert code == 0, said
    (words,) = [one[4:] for one in calls if one[4] == "preflight"]
    asked = commands.only_command(requests.read(words, {"RECIPE": env["RECIPE"]})).words
    code, said = fork_server.run_module(
        "stages.preflight.__main__", asked[2:], ROOT, tmp_path / "preflight.log"
    )
    num_trainers, engine = int(nodes) - int(env.get("VLLM_HOSTS", 0)), env.get("ACCELERATE")
    line = f"configs/{env['RECIPE']}: GPUs {8 * num_trainers}, {engine or 'fsdp2'}, "
    assert code == 0 and line in said and "preflight: error" not in said
    assert ("cache for" in said) is ("VLLM_HOSTS" not in env)  # of a colocated vLLM


@pytest.mark.parametrize("case", yaml.safe_load(JOBS.read_text(encoding="utf-8")))
def test_how_a_job_ends(run, case):
    code, said, calls = run(*case.get("words", []), **case.get("job", {}), **case.get("env", {}))
    assert code == case["code"], said
    assert said.startswith(case.get("starts", "")) and said.endswith(case.get("ends", "")), said
    assert case.get("has", "") in said
    assert "lacks" not in case or case["lacks"] not in said
    assert [*dict.fromkeys(words[2] for _, words in started(calls))] == case["stages"]
    if "hosts" in case:
        assert sorted(host for host, _ in started(calls, "sft")) == case["hosts"]
    if "call" in case:
        assert case["call"].split() in calls


@pytest.mark.slow
def test_a_job_that_was_killed_ends_with_the_report_and_with_the_weights_of_another(
    job, tmp_path, fork_server
):
    """The real stages, by two launchers on this machine, under two of its names."""
    grpo = {"max_steps": 6, "save_steps": 2, "eval_problems": 8, "guard_no_signal": "off"}
    grpo |= {"curriculum": None, "pass_rates": None}  # no pass rates, which take a minute
    evaluation = {"num_samples": 1, "limit": 8, "checkpoints": ["grpo={run}/grpo"]}
    sft = {"num_train_epochs": 0.03, "save_steps": 10}
    demo.write_recipe(tmp_path, {}, {"sft": sft, "grpo": grpo, "eval": evaluation})
    recipe, run = tmp_path / "tiny-cpu", tmp_path / "run"
    outer = {key: value for key, value in os.environ.items() if key not in demo.OUTER}
    env = outer | job["env"] | {"SLURM_JOB_NODELIST": "localhost 127.0.0.1", "RUN": str(run)}
    env |= {"SLURM_GPUS_ON_NODE": "1", "OMP_NUM_THREADS": "1", "RECIPE": str(recipe)}
    env |= {"ACCELERATE": "multi_node", "AUDIT": "off"}

    def submit(log):
        arguments = job | {"cwd": ROOT, "env": env, "stdout": log.open("w")}
        return subprocess.Popen(["bash", str(SCRIPT)], start_new_session=True, **arguments)

    killed, log = submit(tmp_path / "killed.log"), tmp_path / "job.log"
    deadline = time.monotonic() + 400
    while not whole_checkpoints(run / "grpo"):
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)  # as when a host has died; Slurm starts it again
    killed.wait()
    made = {file: file.stat().st_mtime_ns for file in run.glob("*/manifest.json")}
    assert {file.parent.name for file in made} >= {"data", "base", "sft"}
    assert submit(log).wait(timeout=400) == 0, log.read_text()
    assert f"resuming from {(run / 'grpo').resolve()}/checkpoint-" in log.read_text()
    assert (run / "report/report.html").is_file() and "Traceback" not in log.read_text()
    assert made == {file: file.stat().st_mtime_ns for file in made}  # nothing was done twice

    straight = tmp_path / "straight.yaml"
    keys = yaml.safe_load((recipe / "grpo.yaml").read_text().replace("{run}", str(run)))
    straight.write_text(yaml.safe_dump(keys | {"output_dir": f"{tmp_path}/straight"}))
    fork_server.finish(straight, 2)
    one, other = (tmp_path / name / "model.safetensors" for name in ("run/grpo", "straight"))
    assert one.read_bytes() == other.read_bytes()
