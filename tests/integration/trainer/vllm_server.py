"""Stand-ins for `vllm serve` on loopback and for the engine of a GPU, with their faults.

The server speaks what TRL's client says. Weights come by HTTP in NCCL's place, which needs a GPU:
`with_client` has the client send them so. All else is TRL's own code, without vLLM installed.
"""

import io
import itertools
import json
import os
import threading
import zlib
from collections import Counter
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import torch
from transformers import AutoModelForCausalLM

NCCL = "/in-place-of-nccl"
CONFIG = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs"},
}
ANSWERS = {  # where a client looks at more than the status
    "/v1/models": {"data": [{"id": "stand-in"}]},
    "/get_world_size": {"world_size": 1},
    "/reset_prefix_cache": {"success": True},
}


class StandIn:
    """One server with the weights of a checkpoint.

    Attributes:
        faults: (path, number of the request to it, from 1) -> what then happens instead: "die",
            "hang", "restart" (with the checkpoint's weights; then it answers), an HTTP status or
            "forget" (has the checkpoint's weights from then on, whatever it is sent).
        calls: paths of the requests, in their order.
        sampled: how many prompts were completed, by temperature and top_p.
    """

    def __init__(self, checkpoint, port=0, faults=None):
        self.checkpoint, self.faults, self.calls = checkpoint, dict(faults or {}), []
        self.sampled = Counter()
        self.instances, self.forgets, self.released = itertools.count(), False, threading.Event()
        self.lock = threading.Lock()
        self.load()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                stand_in.handle(self, b"")

            def do_POST(self):
                stand_in.handle(self, self.rfile.read(int(self.headers["Content-Length"] or 0)))

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads, self.http.block_on_close = True, False
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=[0.02], daemon=True).start()

    def load(self):
        """What a start does."""
        self.model, self.instance = self.read(), f"start{next(self.instances)}"

    def read(self):
        return AutoModelForCausalLM.from_pretrained(self.checkpoint, dtype=torch.float32)

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()

    def handle(self, request, body):
        path = request.path.partition("?")[0]
        with self.lock:
            self.calls.append(path)
            fault = self.faults.get((path, self.calls.count(path)))
        if fault == "die":
            return self.close()  # without an answer
        if fault == "hang":
            self.released.wait()
            return None
        if fault == "restart":
            self.load()
        self.forgets |= fault == "forget"
        try:
            status, answer = 200, self.answer(path, body)
        except Exception as error:
            status, answer = 500, str(error)
        if isinstance(fault, int):
            status, answer = fault, "no"
        request.send_response(status)
        request.end_headers()
        request.wfile.write(json.dumps(answer).encode())
        return None

    def answer(self, path, body):
        if path == NCCL and not self.forgets:
            found = self.model.load_state_dict(torch.load(io.BytesIO(body)), strict=False)
            assert not found.unexpected_keys and {*found.missing_keys} <= {"lm_head.weight"}
        if path == "/server_info":
            return {"vllm_config": {"instance_id": self.instance} | CONFIG}
        if path == "/v1/completions":
            return {"choices": self.complete(**json.loads(body))}
        return ANSWERS.get(path, {})

    def complete(self, prompt, n, max_tokens, temperature, model, **others):
        """Choices in vLLM's form; the same weights write the same."""
        assert model == "stand-in" and others["return_token_ids"]
        self.sampled[temperature, others["top_p"]] += len(prompt)
        model = self.read() if self.forgets else self.model
        choices = []
        for ids in prompt:
            for row, logps in draw(model, ids, n, max_tokens, temperature=temperature):
                tokens = [f"token_id:{one}" for one in row]
                choices.append({
                    "prompt_token_ids": ids, "token_ids": row,
                    "logprobs": {
                        "tokens": tokens, "token_logprobs": logps, "top_logprobs": [None] * len(row)
                    },
                })  # fmt: skip
        return choices


@torch.no_grad()
def draw(model, ids, n, max_tokens, *marks, temperature=1.0):
    """`n` pairs of new tokens and their log-probs; the same weights draw the same."""
    mark = sum(part.double().sum().item() for part in model.parameters())
    seed = torch.Generator().manual_seed(zlib.crc32(f"{ids} {mark} {marks}".encode()))
    rows, logps = torch.tensor([ids] * n), []
    for _ in range(max_tokens):
        scores = (model(rows).logits[:, -1] / temperature).log_softmax(-1)
        new = torch.multinomial(scores.exp(), 1, generator=seed)
        logps.append(scores.gather(1, new))
        rows = torch.cat([rows, new], dim=1)
    end, pairs = model.config.eos_token_id, []
    for row, values in zip(rows[:, len(ids) :].tolist(), torch.cat(logps, 1).tolist(), strict=True):
        size = row.index(end) + 1 if end in row else len(row)
        pairs.append((row[:size], values[:size]))
    return pairs


def update_named_params(self, metadata, named_params):
    """TRL's without NCCL."""
    self._start_weight_update()
    file = io.BytesIO()
    torch.save({name: weights.detach().clone() for name, weights in named_params}, file)
    self._post(f"{self.base_url}{NCCL}", data=file.getvalue())
    self._finish_weight_update()


def with_client():
    """Set up a process that trains with a stand-in."""
    from trl.generation import vllm_client, vllm_generation

    from stages import host, rewards
    from tests.integration.trainer.runs import grade_by_checksum

    os.environ["NO_PROXY"] = "127.0.0.1"
    torch.set_num_threads(1)
    host.check_vllm = host.check_server
    for module in (vllm_client, vllm_generation):
        module.is_vllm_available = lambda *args, **kwargs: True
    vllm_client._HAS_RESET_PREFIX_CACHE_SUCCESS = True
    vllm_client.VLLMClient.init_communicator = lambda self, device=0: None  # of NCCL
    vllm_client.VLLMClient.update_named_params = update_named_params
    vllm_client.Retry = partial(vllm_client.Retry, backoff_max=0.05)
    rewards.grade_rollouts = grade_by_checksum


# vLLM's, by its name, is raised where the engine's own process has ended.
Dead = type("EngineDeadError", (Exception,), {})


class Engine:
    """A stand-in for `vllm.LLM`, as far as TRL's colocate mode uses it on GPUs.

    Sleep of level 2 throws the weights away; nothing may be done to what is asleep. The
    environment's DIE is the number of the generation, from 1, at which the engine is dead.
    """

    def __init__(self, model, enable_sleep_mode, **settings):
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.can_sleep, self.awake, self.count = enable_sleep_mode, {"weights", "kv_cache"}, 0
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=self))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker),
            engine_core=SimpleNamespace(shutdown=lambda: None),
            model_config=SimpleNamespace(max_model_len=512),
        )

    def load_weights(self, pairs):
        assert "weights" in self.awake
        assert not self.model.load_state_dict(dict(pairs), strict=False).unexpected_keys

    def reset_prefix_cache(self):
        pass

    def wake_up(self, tags):
        assert self.can_sleep
        self.awake |= {*tags}

    @torch.no_grad()
    def sleep(self, level):
        assert self.can_sleep and level == 2
        self.awake = set()
        for part in self.model.parameters():
            part.fill_(torch.nan)

    def generate(self, prompts, sampling_params, use_tqdm):
        assert self.awake == {"weights", "kv_cache"} and sampling_params["n"] == 1
        self.count += 1
        if self.count == int(os.environ.get("DIE", "0")):
            raise Dead("EngineCore encountered an issue.\nSee stack trace (above)")
        found = []
        for number, prompt in enumerate(prompts):
            ids = prompt["prompt_token_ids"]
            row, logps = draw(self.model, ids, 1, sampling_params["max_tokens"], number)[0]
            logprobs = [
                {token: SimpleNamespace(rank=1, logprob=value)}
                for token, value in zip(row, logps, strict=True)
            ]
            outputs = [SimpleNamespace(token_ids=row, logprobs=logprobs)]
            found.append(SimpleNamespace(prompt_token_ids=ids, outputs=outputs))
        return found


def with_engine():
    """Set up a process that trains with a stand-in engine, on the path of GPUs."""
    from trl.generation import vllm_generation

    from stages import host

    with_client()
    host.check_vllm = lambda settings: None
    vllm_generation.LLM, vllm_generation.SamplingParams = Engine, dict
