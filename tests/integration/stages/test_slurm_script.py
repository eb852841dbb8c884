"""The Slurm script with stand-ins for Slurm and for all that it starts: who runs what, and when."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from eval.audit.__main__ import AuditArguments
from pipeline import manifest
from pipeline.freshness import settings_of
from pipeline.stages import STAGES, config_name
from tests.demo import OUTER
from tests.pages import commands_of_pages

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
# Every stand-in writes a line of `log`: its name, the host, its words.
RECORD = f"""#!{sys.executable}
import json, os, pathlib, shlex, signal, subprocess, sys, time
name, host = pathlib.Path(sys.argv[0]).name, os.environ.get("SLURMD_NODENAME")
log = os.environ["LOG"]
def record(*words):
    with open(log, "a") as file:
        file.write(json.dumps([name, host, *words]) + "\\n")
"""
STAND_INS = {
    "scontrol": """
assert sys.argv[1:3] == ["show", "hostnames"]
print(*sys.argv[3].split(), sep="\\n")
""",
    # A task on each host; a signal goes to all of them.
    "srun": """
flags = [word for word in sys.argv[1:] if word.startswith("--nodelist=")]
command = sys.argv[1:]
while command[0].startswith("--"):
    record(command.pop(0)) if "cpus" in command[0] else command.pop(0)
tasks = []
for host in flags[0].partition("=")[2].split(","):
    tasks.append(subprocess.Popen(command, env=os.environ | {"SLURMD_NODENAME": host}))
signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
sys.exit(max(abs(task.wait()) for task in tasks))
""",
    # The command is the real one, and says what it would start.
    "python": """
words = sys.argv[1:]
if words[2] == "preflight" and "CHECKS" not in os.environ:  # which takes seconds
    sys.exit()
if "--only" in words:
    words.insert(2, "--dry-run")
done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True)
if done.returncode or {"--list", "--start-model", "preflight"} & {*words}:
    sys.stdout.write(done.stdout)
    sys.exit(done.returncode)
words = shlex.split(done.stdout)[1:]
if words[1] == "stages.run.launch":
    name = "launch"
    is_first = f'["launch", "{host}"' not in open(log).read()
record(*words)
if name == "launch" and os.environ.get("DIES") in words:
    os.killpg(os.getpgrp(), signal.SIGKILL)  # the whole job
if name == "launch" and is_first and os.environ.get("KILL") == host:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(os.environ.get("FAIL", "") in words) * int(os.environ.get("CODE", 1)))
""",
    "vllm": """
record(*sys.argv[1:], os.environ["VLLM_SERVER_DEV_MODE"])
if "SERVER_FAILS" in os.environ:
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: [record("ended"), os._exit(0)])
time.sleep(60)
""",
    "curl": """
record(sys.argv[-1])
sys.exit(0 if '["vllm", ' in open(log).read() and "SERVER_FAILS" not in os.environ else 7)
""",
    "ray": """
record(*sys.argv[1:])
if sys.argv[1] == "status":
    print(" 1 node_a\\n" * open(log).read().count('"start"'))
""",
}


SCRIPT = ROOT / "configs/accelerate/slurm.sh"


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


EXAMPLES = read_examples()


class Job:
    """A project folder with stand-ins, and the script run in it."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        shutil.copytree(ROOT / "configs", folder / "configs")
        for name, source in STAND_INS.items():
            place = folder / ("bin" if name in ("srun", "scontrol", "curl") else ".venv/bin")
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(RECORD + source)
            (place / name).chmod(0o755)

    def run(self, *keys, hosts="n1 n2 n3", flags=(), **env):
        """Run the job; returns (exit code, output, records), without srun's own records."""
        self.log.write_text("")
        env = {"LOG": str(self.log), "SLURM_JOB_ID": "12345", "SLURM_JOB_NODELIST": hosts} | env
        env |= {"SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "96", "PYTHONPATH": str(ROOT)}
        env |= {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        outer = {key: value for key, value in os.environ.items() if key not in OUTER}
        script = self.folder / SCRIPT.relative_to(ROOT)
        done = subprocess.run(
            ["bash", str(script), *flags, *keys], cwd=self.folder, env=outer | env, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            start_new_session=True,
        )  # fmt: skip
        records = self.records()
        if "DIES" not in env and any(
            record[0] == "vllm" and "serve" in record for record in records
        ):
            deadline = time.monotonic() + 10
            while "SERVER_FAILS" not in env and ["vllm", "ended"] not in [r[::2] for r in records]:
                assert time.monotonic() < deadline, "the server runs on"
                time.sleep(0.02)
                records = self.records()
        assert all(record[2] == "--cpus-per-task=96" for record in records if record[0] == "srun")
        return done.returncode, done.stdout, [r for r in records if r[0] != "srun"]

    def finish(self, stage):
        """Leave the manifest of a stage that has ended."""
        folder = self.folder / "runs/grpo7b" / stage
        folder.mkdir(parents=True)
        keys = ["sft.dtype=float32", "grpo.dtype=float32"]  # as the script trains
        if stage == "audit":
            config = asdict(AuditArguments("configs/grpo7b", "runs/grpo7b", keys=keys))
            request = {"written": {}, "typed": []}
            files = sorted((self.folder / "configs/grpo7b").glob("*.yaml"))
            inputs = {f"configs/grpo7b/{one.name}": manifest.sha256(one) for one in files}
        else:
            file = str(self.folder / f"configs/grpo7b/{config_name(stage)}.yaml")
            words = [STAGES[stage].module, "--config", file, "--run_dir", "runs/grpo7b"]
            settings = settings_of(stage, words)
            config, request = {"dtype": "float32"}, manifest.as_request(settings, ())
            inputs = {}
        made = {"stage": stage, "inputs": inputs, "request": request, "config": config}
        made["code"] = manifest.hash_code(*(ROOT / one for one in STAGES[stage].code))
        (folder / "manifest.json").write_text(json.dumps(made))

    def records(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def launches(records, stage):
    """Of a stage: `{host: words}`."""
    wanted = "eval.run" if stage == "eval" else f"stages.{stage}"
    return {r[1]: r[2:] for r in records if r[0] == "launch" and wanted in r}


def value(words, flag):
    return words[words.index(flag) + 1]


def test_a_user_s_model_reaches_training_and_audit(job):
    code, err, records = job.run(MODEL="my w")
    assert code == 0, err
    (audit,) = (record for record in records if "eval.audit" in record)
    for words in (audit, launches(records, "sft")["n1"], launches(records, "grpo")["n2"]):
        assert value(words, "--model") == "my w"
    assert re.fullmatch(r"runs/grpo7b-my\.w-\w{6}", value(audit, "--run"))


def test_two_trainers_and_a_server(job):
    keys = ["sft.max_steps=7", "grpo.beta=0.1"]
    code, err, records = job.run(*keys, VLLM_HOSTS="1", VLLM_ARGS="--tensor-parallel-size 4")
    assert code == 0, err
    stages = [launches(records, stage) for stage in ("sft", "grpo")]
    for stage, found in zip(("sft", "grpo"), stages, strict=True):
        assert sorted(found) == ["n1", "n2"]
        for rank, host in enumerate(("n1", "n2")):
            words = found[host]
            assert words[:2] == ["-m", "stages.run.launch"]
            assert value(words, "--machine_rank") == str(rank)
            assert value(words, "--num_machines") == "2"
            assert value(words, "--num_processes") == "16"
            assert value(words, "--main_process_ip") == "n1"
            assert value(words, "--main_process_port") == "24690"  # 20000 + 2 x (12345 mod 5000)
            assert value(words, "--config_file") == "configs/accelerate/fsdp2.yaml"
            assert value(words, "--config") == f"configs/grpo7b/{stage}.yaml"
            assert value(words, "--run_dir") == "runs/grpo7b"
    sft, grpo = (found["n2"] for found in stages)
    assert sft[-4:] == ["--max_steps", "7", "--dtype", "float32"] and "--vllm_mode" not in sft
    assert value(grpo, "--vllm_mode") == "server" and value(grpo, "--use_vllm") == "true"
    assert value(grpo, "--vllm_server_host") == "n3" and value(grpo, "--beta") == "0.1"
    assert value(grpo, "--dtype") == "float32"

    (server,) = (r for r in records if r[0] == "vllm" and r[2] == "serve")
    assert server[1] == "n3" and server[3:6] == ["runs/grpo7b/sft", "--port", "8000"]
    assert server[-3:] == ["--tensor-parallel-size", "4", "1"]  # and VLLM's development mode
    assert {r[2] for r in records if r[0] == "curl"} == {"http://n3:8000/health"}
    order = [r[3] if r[0] == "python" else r[0] for r in records]
    order = [name for n, name in enumerate(order) if n == 0 or order[n - 1] != name]
    assert order[0] == "data_prep.builder" and order[-1] == "eval.report"
    assert order.index("eval.audit") < order.index("vllm") < order.index("eval.report")
    assert all(r[1] == "n1" for r in records if r[0] == "python")
    for stage in ("difficulty", "eval"):  # on the first host's GPUs
        (host,) = launches(records, stage)
        words = launches(records, stage)[host]
        assert host == "n1" and value(words, "--num_processes") == "8"
        assert value(words, "--config_file") == "configs/accelerate/ddp.yaml"


def test_the_real_parsers_take_the_flags(job):
    from accelerate.commands.launch import launch_command_parser
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    from pipeline.settings import parse
    from stages.arguments import GrpoArguments

    recipe = job.folder / "configs" / "small"
    recipe.mkdir()
    (recipe / "data.yaml").touch()
    values = {"train_file": "x", "model_name_or_path": "{run}/sft", "bf16": False}
    values |= {"num_generations": 4, "per_device_train_batch_size": 4}
    (recipe / "grpo.yaml").write_text(json.dumps(values))
    keys = {"checkpoints": ["grpo={run}/grpo"], "tasks": ["math500"]}
    (recipe / "eval.yaml").write_text(json.dumps(keys))
    job_keys = {"RECIPE": "small", "VLLM_HOSTS": "1", "AUDIT": "off"}
    _, _, records = job.run(**job_keys, VLLM_ARGS="--tensor-parallel-size 4")
    launch = launches(records, "grpo")["n2"]
    taken = launch_command_parser().parse_args(launch[2:])
    assert (taken.machine_rank, taken.training_script) == (1, "stages.grpo")
    assert taken.same_network and taken.deepspeed_multinode_launcher == "standard"
    (server,) = (r for r in records if r[0] == "vllm" and r[2] == "serve")
    # As TRL would start it, but for what stays vLLM's default.
    wanted = build_command(ScriptArguments("runs/small/sft", tensor_parallel_size=4))
    for flag in ("--port", "--tensor-parallel-size", "--logprobs-mode", "--weight-transfer-config"):
        assert value(server, flag) == value(wanted, flag), flag
    assert server[3] in wanted and "--enable-scale-out" in server
    own = taken.training_script_args
    own[own.index("--config") + 1] = str(recipe / "grpo.yaml")
    _, grpo, model = parse("", GrpoArguments, ("GRPOConfig", "ModelConfig"), argv=own)
    assert (grpo.use_vllm, grpo.vllm_mode, grpo.vllm_server_host) == (True, "server", "n3")
    assert model.model_name_or_path == server[3]  # served and trained are the same


def test_the_server_follows_the_recipe(job):
    keys = ["grpo.fp16=true", "grpo.bf16=false", "grpo.top_p=0.9"]
    code, said, records = job.run(*keys, VLLM_HOSTS="1")
    assert code == 0, said
    (server,) = (r for r in records if r[0] == "vllm" and r[2] == "serve")
    assert value(server, "--dtype") == "float16"
    assert value(server, "--logprobs-mode") == "raw_logprobs"
    assert " --dtype float16" in job.run(*keys, flags=["--dry-run"], VLLM_HOSTS="1")[1]


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({"RECIPE": "rlite"}, "Qwen/Qwen2.5-7B"),
        ({"RECIPE": "rlite", "MODEL": "my w"}, "my w"),
        ({"RECIPE": "rlite", "keys": ["grpo.model_name_or_path=w"]}, "w"),
        ({"RECIPE": "grpo7b", "MODEL": "my w", "RUN": "runs/a"}, "runs/a/sft"),
    ],
)
def test_the_server_has_the_model_that_grpo_starts_from(job, given, model):
    keys = given.pop("keys", [])
    code, said, records = job.run(*keys, VLLM_HOSTS="1", **given)
    assert code == 0, said
    assert [r[3] for r in records if r[0] == "vllm" and r[2] == "serve"] == [model]
    assert (
        f" vllm serve {model} --port"
        in job.run(*keys, VLLM_HOSTS="1", flags=["--dry-run"], **given)[1]
    )


def test_without_a_server_all_hosts_train(job):
    code, err, records = job.run(ACCELERATE="zero3", DATA_ROOT="/data", LORA="1")
    assert code == 0, err
    found = launches(records, "grpo")
    assert value(found["n1"], "--overlay") == "configs/lora.yaml"
    assert value(found["n1"], "--run_dir") == "runs/grpo7b-lora"
    assert sorted(found) == ["n1", "n2", "n3"] and "--use_vllm" not in found["n1"]
    assert value(found["n3"], "--num_processes") == "24"
    assert value(found["n3"], "--config_file") == "configs/accelerate/zero3.yaml"
    assert not {"vllm", "curl"} & {r[0] for r in records} and "--dtype" not in found["n1"]
    assert [value(r, "--data_root") for r in records if "data_prep.builder" in r] == ["/data"]


def test_two_vllm_hosts_are_one_server(job):
    code, err, records = job.run(hosts="n1 n2 n3 n4", VLLM_HOSTS="2")
    assert code == 0, err
    ray = {(r[1], *r[2:]) for r in records if r[0] == "ray" and r[2] == "start"}
    head = ("n3", "start", "--head", "--port", "6379")
    assert ray == {head, ("n4", "start", "--address", "n3:6379", "--block")}
    (server,) = (r for r in records if r[0] == "vllm" and r[2] == "serve")
    assert server[1] == "n3" and value(server, "--distributed-executor-backend") == "ray"
    assert sorted(launches(records, "grpo")) == ["n1", "n2"]


def test_a_server_that_does_not_start(job):
    code, err, records = job.run(SERVER_FAILS="1", VLLM_HOSTS="1")
    assert code == 2 and not launches(records, "grpo")
    assert "error: vLLM ended before it answered http://n3:8000/health" in err


def test_trainers_that_fail_end_the_server(job):
    code, _, records = job.run(FAIL="stages.grpo", VLLM_HOSTS="1")  # `run` waits for the server
    assert code == 1 and launches(records, "grpo")


def test_a_killed_launcher_is_started_again_and_a_mistake_is_not(job):
    code, err, records = job.run(KILL="n2")
    assert code == 0, err
    for host, number in (("n1", 1), ("n2", 2), ("n3", 1)):
        starts = [r for r in records if r[:2] == ["launch", host] and "stages.sft" in r]
        assert len(starts) == number
    code, _, records = job.run(FAIL="stages.sft", CODE="2")
    assert code == 2
    assert sorted(r[1] for r in records if r[0] == "launch") == ["n1", "n2", "n3"]


def test_again_it_does_what_is_left(job):
    for stage in ("data", "sft", "difficulty"):
        job.finish(stage)
    code, _, records = job.run()
    assert code == 0 and not launches(records, "sft") and launches(records, "grpo")
    assert [r[3] for r in records if r[0] == "python"] == ["eval.audit", "eval.report"]
    for stage in ("grpo", "audit", "eval", "report"):
        job.finish(stage)
    assert job.run()[::2] == (0, [])


@pytest.mark.parametrize(("hosts", "served"), [("n1", 0), ("n1 n2", 1), ("n1 n2 n3 n4", 0)])
def test_a_job_that_died_in_grpo_goes_on_when_it_is_requeued(job, hosts, served):
    code, _, records = job.run(hosts=hosts, VLLM_HOSTS=str(served), DIES="stages.grpo")
    assert code == -signal.SIGKILL and launches(records, "sft") and launches(records, "grpo")
    assert "eval.report" not in [r[3] for r in records if r[0] == "python"]
    for stage in ("data", "sft", "difficulty", "audit"):
        job.finish(stage)
    code, said, records = job.run(hosts=hosts, VLLM_HOSTS=str(served))
    assert code == 0, said
    assert not launches(records, "sft") and not launches(records, "difficulty")
    assert sorted(launches(records, "grpo")) == hosts.split()[: len(hosts.split()) - served]
    assert [r[3] for r in records if r[0] == "python"][-1] == "eval.report"
    assert [r[1] for r in records if r[0] == "vllm" and r[2] == "serve"] == ["n2"] * served


@pytest.mark.parametrize(("hosts", "served"), [("n1", 0), ("n1 n2", 0), ("n1 n2 n3 n4", 0),
                                               ("n1 n2", 1), ("n1 n2 n3 n4 n5", 1)])  # fmt: skip
def test_a_step_keeps_the_recipe_s_rows(job, hosts, served):
    """What the stages make of their keys on so many GPUs; and the job ends with the report."""
    from pipeline.settings import read_settings
    from stages.arguments import DEFAULTS, GRPO, GrpoArguments
    from stages.run.launch import keep_batch

    code, said, records = job.run(hosts=hosts, VLLM_HOSTS=str(served), RECIPE="rlite")
    assert code == 0, said
    words = launches(records, "grpo")["n1"]
    num_processes = int(value(words, "--num_processes"))
    assert num_processes == 8 * (len(hosts.split()) - served)
    own = words[words.index("stages.grpo") + 1 :]
    own[own.index("--config") + 1] = str(ROOT / "configs/rlite/grpo.yaml")
    settings = keep_batch(read_settings(GrpoArguments, GRPO, own, DEFAULTS), num_processes)
    rows = settings.per_device_train_batch_size * settings.gradient_accumulation_steps
    assert rows * num_processes == 8192 and settings.dtype == "float32"
    assert [r[3] for r in records if r[0] == "python"][-1] == "eval.report"


def test_a_dry_run_prints_and_starts_nothing(job):
    for flags, hosts in ((["--dry-run"], "n1 n2"), (["--dry-run", "--nodes", "2"], "")):
        code, said, records = job.run(hosts=hosts, flags=flags, VLLM_HOSTS="1")
        assert (code, records) == (0, []), said
        lines = [line for line in said.splitlines() if line.startswith("on ")]
        trainer, server = ("n1", "n2") if hosts else ("host-1", "host-2")
        stages = ["data", "audit", "sft", "difficulty", "vllm", "grpo", "eval", "report"]
        assert len(lines) == len(stages)
        for line, stage in zip(lines, stages, strict=True):
            start = f"on {trainer}: python -m pipeline {stage} --only"
            assert line.startswith(start if stage != "vllm" else f"on {server}: vllm serve ")
        assert f"grpo.vllm_server_host={server}" in lines[5]
    code, said, _ = job.run(hosts="n1", flags=["--dry-run", "--nodes", "none"])
    assert code == 2 and said == "error: --nodes: 'none' is no number of hosts\n"


def test_the_script_has_examples_for_one_host_several_and_a_server():
    nodes, servers = zip(
        *((nodes, env.get("VLLM_HOSTS")) for env, nodes, _ in EXAMPLES), strict=True
    )
    assert len({*nodes}) > 1 and "1" in nodes and "1" in servers


@pytest.mark.parametrize(("env", "nodes", "keys"), EXAMPLES)
def test_an_example_of_the_script_or_of_a_page_passes_preflight(job, env, nodes, keys):
    flags = ["--dry-run", "--nodes", nodes]
    code, said, records = job.run(*keys, hosts="", flags=flags, CHECKS="1", **env)
    assert (code, records) == (0, []), said
    num_trainers = int(nodes) - int(env.get("VLLM_HOSTS", 0))
    engine = env.get("ACCELERATE", "fsdp2")
    assert f"configs/{env['RECIPE']}: GPUs {8 * num_trainers}, {engine}, " in said
    assert "preflight: error" not in said and "pipeline grpo --only" in said
    assert ("cache for" in said) is ("VLLM_HOSTS" not in env)  # of a colocated vLLM


def test_a_dry_run_shows_what_preflight_finds_and_ends_with_its_code(job):
    flags = ["--dry-run", "--nodes", "3"]
    code, said, records = job.run(hosts="", flags=flags, CHECKS="1", RECIPE="grpo7b")
    assert (code, records) == (2, []) and "no whole number on 24" in said
    assert "pipeline report --only" in said


def test_max_hours_end_the_job_in_time(job):
    """The stage ends with a checkpoint and exit code 2; what it ends is no failure of the job."""
    code, said, records = job.run(hosts="n1", MAX_HOURS="0.0001", FAIL="stages.sft", CODE="2")
    assert code == 0 and said.endswith("MAX_HOURS is over; submit the same line again to go on\n")
    assert not launches(records, "grpo")
    code, said, _ = job.run(hosts="n1", MAX_HOURS="9", FAIL="stages.sft", CODE="2")
    assert code == 2 and "MAX_HOURS is over" not in said


MISTAKES = {
    "all hosts serve": ({"VLLM_HOSTS": "3"}, "VLLM_HOSTS: 3 of 3 hosts leaves none to train"),
    "no hours": ({"MAX_HOURS": "a day"}, "MAX_HOURS: 'a day' is no number of hours"),
    "an unknown key": ({"keys": ["grpo.topp=1"]}, "grpo.topp=1: grpo has no key 'topp'"),
    "a key without its stage": ({"keys": ["top_p=1"]}, "top_p=1: unknown word"),
    "the old form": ({"KEYS": "grpo.top_p=1"}, "KEYS: is not read; write each key as a word"),
    "no number": ({"VLLM_HOSTS": "one"}, "VLLM_HOSTS: 'one' is no number"),
    "no recipe": ({"RECIPE": "grpo8b"}, "RECIPE: no recipe in configs/grpo8b; did you mean grpo7b"),
    "the old name with LoRA": ({"RECIPE": "grpo7b-lora"}, "RECIPE: no grpo7b-lora; use RECIPE="),
    "no config": ({"ACCELERATE": "zero4"}, "ACCELERATE: no configs/accelerate/zero4.yaml here"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(job, name):
    env, line = MISTAKES[name]
    code, err, records = job.run(*env.pop("keys", []), **env)
    assert (code, records) == (2, []) and err.startswith(f"error: {line}")
