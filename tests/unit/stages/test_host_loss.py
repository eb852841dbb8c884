"""The watch of hosts over each other, with plain sockets on loopback: no torch, no namespaces."""

import contextlib
import queue
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_prep.config import UserError
from stages import host_loss
from stages.host_loss import HostLoss, watched


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()


@pytest.fixture
def hosts(address):
    """Three hosts in this process that have met; what each finds lost is in its queue."""
    found = [queue.Queue() for _ in range(3)]
    hosts = [HostLoss(rank, 3, address, 2, found[rank].put) for rank in range(3)]
    deadline = time.monotonic() + 10
    while len(hosts[0].peers) < 2 or not (hosts[1].peers and hosts[2].peers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield hosts, found
    for host in hosts:
        host.stop()
    hosts[0].server.close()


NAME = socket.gethostname()
ENDED = "is lost: its processes ended, killed or by an error in its log"


def hang_up(host):
    host.is_over = True  # killed, it has no word for the others
    for peer in host.peers.values():
        with contextlib.suppress(OSError):  # the other end was faster
            peer.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("lost", "name"), [(2, f"host 2 ({NAME}, 127.0.0.1)"), (0, "the main host (127.0.0.1)")]
)
def test_processes_that_end_are_a_loss_to_all(hosts, lost, name):
    hosts, found = hosts
    hang_up(hosts[lost])
    others = [rank for rank in range(3) if rank != lost]
    assert [found[rank].get(timeout=10) for rank in others] == [f"{name} {ENDED}"] * 2


def test_an_error_is_told_once_in_its_own_words(hosts):
    hosts, found = hosts
    hosts[1].stop("max_steps: -3 is too few")
    line = f"host 1 ({NAME}, 127.0.0.1) stopped, its log says more: max_steps: -3 is too few"
    assert [found[rank].get(timeout=10) for rank in (0, 2)] == [line, line]
    hosts[0].lose("again")
    time.sleep(0.1)
    assert all(lost.empty() for lost in found)


def test_a_host_that_is_done_is_no_loss(hosts):
    hosts, found = hosts
    for host in reversed(hosts):
        host.stop()
        hang_up(host)
    time.sleep(0.2)
    assert all(lost.empty() for lost in found)


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n", b"hello 3 x\n", b"hello 0 x\n"])
def test_a_stranger_is_nobodys_loss(hosts, address, words):
    hosts, found = hosts
    with socket.create_connection(address) as stranger:
        stranger.sendall(words + b"\n")
        assert stranger.recv(1) == b""  # hung up on
    assert all(lost.empty() for lost in found)


@pytest.mark.parametrize("word", ["bye", "error half a thought"])
def test_a_host_that_comes_and_goes(address, word):
    """Its hello and its last word may arrive together."""
    lost = queue.Queue()
    main = HostLoss(0, 2, address, 2, lost.put)
    with socket.create_connection(address) as peer:
        peer.sendall(f"hello 1 node1\n{word}\n".encode())
    if word == "bye":
        time.sleep(0.2)
        assert lost.empty() and 1 in main.peers
    else:
        said = "host 1 (node1, 127.0.0.1) stopped, its log says more: half a thought"
        assert lost.get(timeout=10) == said
    main.stop()
    main.server.close()


def test_hosts_that_never_come(address, monkeypatch):
    monkeypatch.setattr(host_loss, "JOIN_SECONDS", 0.3)
    lost = queue.Queue()
    alone = HostLoss(1, 2, address, 2, lost.put)
    host, port = address
    line = f"the main host's stage does not answer at {host}:{port}: Connection refused"
    assert lost.get(timeout=10) == line
    alone = HostLoss(0, 2, address, 2, lost.put)
    assert lost.get(timeout=10) == "host 1 did not start the stage within 0.3 s"
    alone.server.close()


def test_off_on_one_host(monkeypatch):
    monkeypatch.setattr(host_loss, "start", None)
    monkeypatch.delenv("GROUP_WORLD_SIZE", raising=False)
    watched(lambda: None)()
    monkeypatch.setenv("GROUP_WORLD_SIZE", "1")
    watched(lambda: None)()
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")  # one process of a host watches for all
    watched(lambda: None)()
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(TypeError):
        watched(lambda: None)()


@pytest.mark.parametrize(
    ("code", "told"),
    [(2, "exit code 2"), ("no room\nleft", "exit code no room"), (0, None), (None, None)],
)
def test_a_stage_that_exits_by_itself(monkeypatch, code, told):
    """A code that is no success is an error to the others, not a good-bye."""
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    words = []
    watch = SimpleNamespace(stop=words.append)
    monkeypatch.setattr(host_loss, "start", lambda env: watch)

    def stage():
        raise SystemExit(code)

    with pytest.raises(SystemExit):
        watched(stage)()
    assert words == [told]


def test_refused_settings(address, monkeypatch):
    env = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": address[0]}
    env |= {"MASTER_PORT": str(address[1] - 1)}
    for value in ("0", "-1", "half", "1.5", ""):
        with pytest.raises(UserError, match=r"^HOST_LOSS_SECONDS: "):
            host_loss.start(env | {"HOST_LOSS_SECONDS": value})
    with socket.create_server(("", address[1])), pytest.raises(UserError) as caught:
        host_loss.start(env)
    assert str(caught.value).startswith(f"main_process_port: {address[1] - 1} needs the port above")


def test_the_remedy_names_the_checkpoint(monkeypatch):
    again = "start the same command on every host again, it"
    assert host_loss.remedy() == f"{again} has no checkpoint and begins anew"
    monkeypatch.setattr(host_loss, "find_checkpoint", lambda: Path("runs/x/grpo/checkpoint-40"))
    assert host_loss.remedy() == f"{again} resumes from runs/x/grpo/checkpoint-40"
    monkeypatch.setattr(host_loss, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(host_loss, "find_checkpoint", lambda: time.sleep(1))  # its server is lost
    assert host_loss.remedy() == f"{again} resumes from its last checkpoint"
