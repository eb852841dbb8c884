"""No call that only Linux has, where a Mac would end in a traceback."""

import ast

import pytest

from eval.harness.settings import split_checkpoints
from grading import worker
from pipeline.errors import UserError
from stages.run import launch
from tests.unit.test_imports import PRODUCT, ROOT

# Names of the standard library and psutil that macOS lacks.
LINUX_ONLY = {
    "sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise", "memfd_create",
    "eventfd", "pidfd_open", "splice", "copy_file_range", "getrandom", "SIGRTMIN", "SIGRTMAX",
    "cpu_affinity", "io_counters", "rlimit", "epoll", "O_DIRECT", "O_TMPFILE", "getxattr",
    "setxattr", "RLIMIT_RTPRIO", "PF_PACKET", "inotify_init",
}  # fmt: skip


def test_no_name_that_only_linux_has_is_used():
    found = []
    for folder in (*PRODUCT, "benchmarks", "docs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in LINUX_ONLY:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}")
    assert found == []  # `getattr` with a default asks whether it is there


def test_cpus_are_counted_without_affinity(monkeypatch):
    monkeypatch.delattr(worker.os, "sched_getaffinity", raising=False)
    assert worker.count_cpus() == (worker.os.cpu_count() or 1)


def test_without_proc_no_launcher_is_known(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("/proc")

    monkeypatch.setattr(launch.Path, "read_text", missing)
    assert launch.parent_command() == []


def test_two_checkpoints_never_share_a_folder_where_case_does_not_count():
    with pytest.raises(UserError, match="SFT"):
        split_checkpoints(["sft=a/b", "SFT=c/d"])
