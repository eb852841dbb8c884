"""Two hosts for a test: Linux network namespaces with addresses of their own, behind one switch.

The switch is a third namespace with a bridge.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def ip(*command):
    done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class TwoHosts:
    """Hosts 0 and 1 with addresses 10.77.0.1 and 10.77.0.2; use it in a `with` statement."""

    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self):
        self.id = uuid.uuid4().hex[:8]  # parallel runs have namespaces of their own
        self.switch = f"switch-{self.id}"
        self.names = [f"host{n}-{self.id}" for n in range(2)]
        self.processes = []

    def __enter__(self):
        try:
            self.build()
        except OSError as error:
            self.__exit__()
            pytest.skip(f"no network namespaces here: {error}")
        return self

    def build(self):
        if shutil.which("ip") is None:
            raise OSError("the command `ip` (iproute2) is not installed")
        for name in (self.switch, *self.names):
            ip("netns", "add", name)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for n, name in enumerate(self.names):
            ends = ["link", "add", f"port{n}", "netns", self.switch, "type", "veth"]
            ip(*ends, "peer", "name", "eth0", "netns", name)
            ip("-n", self.switch, "link", "set", f"port{n}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{self.addresses[n]}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")

    def __exit__(self, *_):
        for n in range(2):
            self.kill(n)
        for process in self.processes:
            process.wait(timeout=20)
        for name in (*self.names, self.switch):
            with contextlib.suppress(OSError):
                ip("netns", "delete", name)

    def start(self, host, command, log, **env):
        """Start a command on a host, its output in the file `log`; returns the process."""
        env = {key: str(value) for key, value in env.items()}
        env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | env
        env |= {"HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        for key in ("RANK", "WORLD_SIZE"):
            env.pop(key, None)
        with open(log, "w") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[host], *map(str, command)],
                env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def launch(self, host, stage, recipe, log, *flags):
        """Start a stage's launcher on a host, for one process each; returns the launcher's process.

        Args:
            flags: further ones for the launcher.
        """
        config = ROOT / "configs" / "accelerate" / "multi_node.yaml"
        command = ["-m", "stages.run.launch", "--config_file", config, "--num_machines", 2]
        command += ["--num_processes", 2, "--machine_rank", host]
        command += ["--main_process_ip", self.addresses[0], *flags]
        command += ["-m", f"stages.{stage}", "--config", recipe]
        return self.start(host, [sys.executable, *command], log)

    def kill(self, host):
        """SIGKILL for every process on a host, the launcher too; none is left."""
        deadline = time.monotonic() + 20
        while pids := self.pids(host):
            assert time.monotonic() < deadline, pids
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def workers(self, host):
        """Pids of the stage's processes on a host, without the launcher's."""
        launcher, module = b"stages.run.launch", b"\0-m\0stages."
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.pids(host)}
        return [pid for pid, line in lines.items() if module in line and launcher not in line]

    def pids(self, host):
        try:
            return [int(pid) for pid in ip("netns", "pids", self.names[host]).split()]
        except OSError:  # the namespace is not there
            return []
