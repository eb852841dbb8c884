"""A vLLM server that dies, hangs, refuses or comes back with other weights in the middle of a run.

The server is a stand-in; its weights come by HTTP and not by NCCL.
"""

import pytest

from pipeline import manifest
from tests.integration.trainer.runs import (
    PAYS_FOR_LOOPS,
    read_events,
    read_history,
    read_logs,
    weights_of,
    whole_checkpoints,
)
from tests.integration.trainer.vllm_server import NCCL, StandIn, with_client, with_engine

pytestmark = pytest.mark.integration
VLLM = PAYS_FOR_LOOPS | {
    "use_vllm": True, "max_steps": 4, "save_steps": 1, "learning_rate": 1e-2,
}  # fmt: skip
COLOCATE = VLLM | {"vllm_mode": "colocate"}
SERVER = VLLM | {
    "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_timeout": 10,
}  # fmt: skip
ASK = "/v1/completions"
LOST, MISTAKE = 75, 2


@pytest.fixture
def serve(tiny_model_dir):
    """Function: (port, faults) -> a stand-in."""
    servers = []

    def call(port=0, faults=None):
        servers.append(StandIn(tiny_model_dir, port, faults))
        return servers[-1]

    yield call
    for server in servers:
        server.close()


@pytest.fixture
def train(fork_server, write_recipe):
    """Function: server, settings -> exit code, lines on the terminal, folder.

    Without a server an engine is in the process; at generation `die` it is dead.
    """

    def call(server=None, die="0", **settings):
        where = COLOCATE if server is None else SERVER | {"vllm_server_port": server.port}
        recipe = write_recipe("grpo", **where | settings)
        setup = with_engine if server is None else with_client
        (code,), (log,) = fork_server.run(recipe, setup=setup, envs={0: {"DIE": die}})
        return code, log, recipe.with_name("grpo")

    return call


@pytest.fixture(scope="module")
def straight():
    """Kept for all tests: the weights of the run that nothing happens to."""
    return []


@pytest.fixture
def wanted(straight, serve, train, tmp_path):
    """The weights that the run ends with if nothing happens to it."""
    if not straight:
        folder = tmp_path / "straight"
        code, log, _ = train(serve(), output_dir=str(folder))
        assert code == 0, log
        alignment = [entry["guard/alignment"] for entry in read_logs(folder)]
        assert len(alignment) == 4 and all(1 <= value < 1.0001 for value in alignment)
        straight.append(weights_of(folder))
    return straight[0]


FAULTS = [  # at the third request to a path; those behind the first two are slow
    ("restart", ASK, "was restarted (start0 is now start1)"),
    ("hang", ASK, "has not ended a generation within 2 s (vllm_call_timeout)"),
    ("die", ASK, "failed at a generation"),
    ("die", "/start_weight_update", "failed at a weight sync"),
    (500, ASK, "failed at a generation"),
    ("restart", "/reset_prefix_cache", "was restarted (start0 is now start1)"),
    ("hang", NCCL, "has not ended a weight sync within 2 s (vllm_call_timeout)"),
]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in FAULTS[2:]]


@pytest.mark.parametrize(("fault", "path", "words"), FAULTS[:2] + SLOW)
def test_it_stops_before_the_step_and_resumes(fault, path, words, wanted, serve, train):
    times = range(3, 12) if fault == 500 else [3]
    server = serve(faults={(path, number): fault for number in times})
    code, log, folder = train(server, vllm_call_timeout=2 if fault == "hang" else 60)
    line = log.splitlines()[-1]
    address = f"vllm_server_host: the vLLM server at http://127.0.0.1:{server.port}"
    assert code == LOST and line.startswith(f"error: {address} {words}"), log
    assert line.endswith("with it up again, the same command resumes from the last checkpoint")
    assert "Traceback" not in log
    assert whole_checkpoints(folder) == [1, 2] and manifest.read(folder) is None
    # Another server, at another address, with the weights that the run began with.
    code, log, folder = train(serve())
    assert code == 0 and "resuming from" in log, log
    assert all(1 <= entry["guard/alignment"] < 1.0001 for entry in read_logs(folder))
    assert weights_of(folder) == wanted


def test_a_validation_of_its_own_sampling_leaves_the_training_as_it_is(
    wanted, serve, train, eval_file
):
    server = serve()
    code, log, folder = train(
        server, eval_file=eval_file, eval_strategy="steps", eval_steps=2,
        num_generations_eval=2, per_device_eval_batch_size=2, eval_temperature=0.5, eval_top_p=0.9,
    )  # fmt: skip
    assert code == 0, log
    assert weights_of(folder) == wanted
    assert server.sampled[0.5, 0.9] == 2 * 5 and {*server.sampled} == {(0.5, 0.9), (1.0, 1.0)}
    evaluated = [log for log in read_history(folder) if "eval_avg@2" in log]
    # The log-probs are of another temperature than the samples.
    assert len(evaluated) == 2 and not any("sampling" in key for log in evaluated for key in log)


@pytest.mark.slow
def test_a_request_that_it_refuses_is_a_mistake(serve, train):
    """Such as a prompt that is too long for `--max-model-len`: to start again would not help."""
    code, log, _ = train(serve(faults={(ASK, 2): 400}))
    assert code == MISTAKE and "failed at a generation (Exception: Request failed: 400" in log, log


def test_other_weights_without_a_restart_are_for_the_guard(serve, train):
    """Such as another run's, on the same server."""
    code, log, folder = train(serve(faults={(ASK, 2): "forget"}), guard_patience=2)
    alignment = [entry["guard/alignment"] for entry in read_logs(folder)]
    assert code == 0 and alignment[0] < 1.0001 and min(alignment[1:]) > 1.05, log
    (event,) = read_events(folder)
    assert (event["guard"], event["action"], event["since"]) == ("alignment", "warn", 1)
    assert "guard alignment: " in log


@pytest.mark.slow
def test_one_process_of_two_talks_to_the_server(serve, fork_server, write_recipe):
    server = serve(faults={(ASK, 3): "restart"})
    recipe = write_recipe("grpo", **SERVER, vllm_server_port=server.port)
    codes, logs = fork_server.run(recipe, 2, setup=with_client)
    assert codes[0] == LOST and codes[1] not in (0, LOST), logs
    assert server.calls.count(ASK) == 3 and "was restarted" in logs[0]
    assert "vllm_server_host" not in logs[1]
    assert whole_checkpoints(recipe.with_name("grpo")) == [1, 2]


# The engine in the training process


def test_a_dead_engine_is_one_line_and_the_run_resumes(train, tmp_path):
    assert train(output_dir=str(tmp_path / "straight"))[0] == 0
    code, log, folder = train(die="3")
    assert code == LOST and whole_checkpoints(folder) == [1, 2], log
    assert log.splitlines()[-1] == (
        "error: use_vllm: the vLLM engine failed at a generation (EngineDeadError: EngineCore "
        "encountered an issue. See stack trace (above)); with it up again, the same command "
        "resumes from the last checkpoint"
    )
    code, log, folder = train()
    assert code == 0 and "resuming from" in log, log
    assert weights_of(folder) == weights_of(tmp_path / "straight")


@pytest.mark.parametrize("settings", [{}, {"curriculum": "refill"}], ids=["once", "refill"])
def test_an_engine_that_sleeps_has_the_weights_of_each_step(train, settings):
    """Awake, it has none until they are loaded; in one step too, where it generates again."""
    code, log, folder = train(vllm_enable_sleep_mode=True, **settings)
    assert code == 0, log
    alignment = [entry["guard/alignment"] for entry in read_logs(folder)]
    assert len(alignment) == 4 and max(alignment) < 1.0001
