"""A user's weights through the published recipes: data to report, shrunk by command line only.

The models are random-init with a vocabulary trained here; their special tokens are those of the
hub's `tokenizer_config.json`, their chat templates the copies in TRL's `chat_templates/`.
"""

import gzip
import json
import sys
import threading
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import pytest
import trl
import yaml

from tests import demo
from tests.integration.conftest import change_json, train_tokenizer
from tests.integration.harness.official_data import gpqa
from tests.integration.sampling.test_openai_engine import answer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TABLES = yaml.safe_load(Path(__file__).with_name("user_weights.yaml").read_text(encoding="utf-8"))
FAMILIES, SMALL = TABLES["families"], TABLES["small"]
OPEN = defaultdict(lambda: open, {".gz": gzip.open})


def shorten(recipe, stage, **more):
    """The keys that make a stage of a recipe short."""
    text = (demo.ROOT / f"configs/{recipe}/{stage}.yaml").read_text(encoding="utf-8")
    keys = yaml.safe_load(text)
    given = {k: v for k, v in SMALL[stage].items() if k in keys}
    given |= {"eval_problems": 2} if "eval_strategy" in keys else {}
    return [f"{k}={v}" for k, v in (TABLES["always"].get(stage, {}) | given | more).items()]


@contextmanager
def teacher(run):
    """A server that knows the answers of a run's problems; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with (run / "data/grpo_train.jsonl").open(encoding="utf-8") as file:
                rows = list(map(json.loads, file))
            text = asked["messages"][-1]["content"]
            gold = next(row["answers"][0] for row in rows if row["question"] in text)
            body = json.dumps(answer(f"I know it.\n\n\\boxed{{{gold}}}")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def build_weights(family, folder, rows):
    """Save a model of a family with 0.2 M parameters, and a tokenizer that knows the rows."""
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    known = FAMILIES[family]
    roles = known["roles"]
    bpe = train_tokenizer(rows, vocab_size=2000)
    bpe.add_special_tokens(list(dict.fromkeys([*roles.values(), *known["special"]])))
    bpe.add_tokens(known["plain"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **roles)
    text = Path(trl.__file__).parent / f"chat_templates/{known['template']}.jinja"
    tokenizer.chat_template = text.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)
    change_json(folder / "tokenizer_config.json", tokenizer_class=known["tokenizer"])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": len(tokenizer)}
    ids = {key[:-5] + "token_id": getattr(tokenizer, f"{key}_id") for key in roles}
    shape = AutoConfig.for_model(known["model"], **sizes, max_position_embeddings=32768, **ids)
    model = AutoModelForCausalLM.from_config(shape)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(known["ends"])
    model.save_pretrained(folder)


def deepmath(count):
    """Rows in the schema of zwhe99/DeepMath-103K."""
    return [
        {
            "question": f"Let $f(x) = x^2 + {i}x$. What is $f({i + 2})$?", "difficulty": 5.5,
            "final_answer": str((i + 2) * (2 * i + 2)), "topic": "Mathematics -> Algebra",
            **{f"r1_solution_{j}": f"So $f({i + 2})$ is computed." for j in (1, 2, 3)},
        }
        for i in range(count)
    ]  # fmt: skip


class Project:
    """A folder from which make runs as in a clone, with data and weights of its own."""

    def __init__(self, folder, shared, family):
        self.folder, self.data, self.weights = folder, folder / "my data", folder / f"my {family}"
        files = ["Makefile", "configs", "pyproject.toml", "locks"]
        for name in [*files, "pipeline", "grading", "data_prep", "stages", "eval"]:
            (folder / name).symlink_to(demo.ROOT / name)
        (folder / "venv").mkdir()
        (folder / "venv/ready").touch()
        for name, count in TABLES["shared"].items():
            with OPEN[name[-3:]](shared / name, "rt", encoding="utf-8") as file:
                self.write(name, islice(file, count))
        for name in ("orz/orz_math_57k_collected.head.json", "dapo/dapo_math_17k.parquet"):
            (self.data / name).parent.mkdir()
            (self.data / name).symlink_to(shared / name)
        self.write("gpqa/gpqa_diamond.jsonl", [json.dumps(row) + "\n" for row in gpqa()])
        self.write("deepmath/train.jsonl", [json.dumps(row) + "\n" for row in deepmath(60)])
        arc = (shared / "arc_challenge/train_sample_300.jsonl").read_text().splitlines(True)
        for split, rows in (("train", arc[:30]), ("validation", arc[30:34]), ("test", arc[34:44])):
            self.write(f"arc_challenge/{split}.jsonl", rows)
        problems = []
        for line in (shared / "gsm8k/train.jsonl").read_text(encoding="utf-8").splitlines()[:200]:
            row = json.loads(line)
            answer = row["answer"].rpartition("#### ")[2]
            problems.append({"question": row["question"], "answer": answer})
        self.write("problems.jsonl", [json.dumps(row) + "\n" for row in problems])
        build_weights(family, self.weights, (shared / "gsm8k/train.jsonl").open(encoding="utf-8"))

    def write(self, name, lines):
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with OPEN[name[-3:]](path, "wt", encoding="utf-8") as file:
            file.writelines(lines)

    def make(self, goal, *keys, **variables):
        """Run a goal with some keys; returns what it printed. An empty variable is left out."""
        values = {"VENV": "venv", "PY": sys.executable, "MODEL": str(self.weights)} | variables
        given = [f"{key}={value}" for key, value in values.items() if value]
        env = {"PYTHONPATH": str(demo.ROOT), "NO_PROXY": "127.0.0.1"}
        done = demo.run(["make", goal, *keys, *given], self.folder, **env)
        assert done.returncode == 0, f"make {goal}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.mark.parametrize("case", TABLES["chains"], ids=" ".join)
def test_from_data_to_report(tmp_path, shared_data, case):
    recipe, family, *lora = case
    project = Project(tmp_path, shared_data, family)
    variables = {"RECIPE": recipe, "LORA": "1" if lora else ""}
    stages = {path.stem for path in (demo.ROOT / f"configs/{recipe}").glob("*.yaml")}
    variables["DATA_ROOT"] = str(project.data)
    project.make("data", **variables)
    (run,) = (tmp_path / "runs").iterdir()
    keys = []  # of the stages before: without them these would train again
    with teacher(run) as url:
        for stage in ("distill", "sft", "difficulty", "grpo", "eval"):
            if stage in stages:
                more = {"base_url": url} if stage == "distill" else {}
                short = shorten(recipe, stage, **more)
                project.make(stage, *short, *keys, **variables)
                keys += [f"{stage}.{one}" for one in short]
        said = project.make("report", *keys, **variables)
    assert run.name.startswith(f"{recipe}-my.{family}") and f"runs/{run.name}" in said
    made = {path.parent.name: json.loads(path.read_text()) for path in run.glob("*/manifest.json")}
    own = (demo.ROOT / f"configs/{recipe}/eval.yaml").read_text().partition("base=")[2]
    own = own.partition(",")[0].rpartition("/")[2]
    assert not [stage for stage, found in made.items() if own in json.dumps(found["config"])]
    assert made["eval"]["config"]["checkpoints"][0] == f"base={project.weights}"
    first = made["sft" if "sft" in made else "grpo"]
    assert first["config"]["model_name_or_path"] == str(project.weights)
    assert first["config"]["use_peft"] is bool(lora)
    report = json.loads((run / "report/report.json").read_text())
    assert f"my {family}" in report["title"] and report["base_model"] == f"my {family}"
    assert {found["base_model"] for found in report["references"]} & {f"my {family}"} == set()
