"""Faults of the system are one line that names folder or limit; our own bugs stay visible."""

import errno
import os
import resource
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import errors, faults
from stages import run_folder

ROOT = Path(__file__).parents[3]
SYSTEMS = (
    "ENOSPC EDQUOT EROFS EACCES EPERM EIO ESTALE ENOTCONN ETIMEDOUT EHOSTDOWN ENODEV ENXIO EBUSY "
    "EMFILE ENFILE EFBIG ENOTDIR EISDIR ELOOP ENAMETOOLONG EAGAIN ENOTEMPTY ENOLCK EOPNOTSUPP "
    "EREMOTEIO EXDEV ETXTBSY EUCLEAN ENOKEY"
)
OURS = "ENOENT EINVAL EBADF ESRCH ECHILD ECONNREFUSED ECONNRESET ENETUNREACH"


def number(name):
    if not hasattr(errno, name):
        pytest.skip(f"no {name} here")
    return getattr(errno, name)


def line_of(error, capsys):
    """The line that an entry point ends with; the error itself where it is no one's but ours."""

    def main():
        raise error

    with pytest.raises(SystemExit, match="2"):
        errors.run_cli(main, is_first=False)
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1
    return text


@pytest.mark.parametrize("name", SYSTEMS.split())
def test_a_systems_error_is_one_line_with_the_file(name, tmp_path, capsys):
    error = OSError(number(name), "why", str(tmp_path / "a"))
    assert f"{tmp_path}/a" in line_of(error, capsys)
    line_of(OSError(number(name), "why"), capsys)  # of a write, which knows no name


@pytest.mark.parametrize("name", OURS.split())
def test_a_wrong_call_is_no_fault_of_the_system(name, tmp_path):
    assert errors.disk_fault(OSError(number(name), "why", str(tmp_path / "a"))) is None
    assert errors.disk_fault(OSError(number(name), "why")) is None


def test_a_missing_folder_is_the_systems_and_a_missing_file_ours(tmp_path, capsys):
    gone = tmp_path / "gone"
    with pytest.raises(OSError) as found:
        (gone / "deeper/a").write_bytes(b"")
    assert line_of(found.value, capsys).startswith(f"error: {gone}: ")
    (tmp_path / "a").touch()
    with pytest.raises(OSError) as found:
        (tmp_path / "a").rename(gone / "a")  # both names count
    assert f"{gone}: " in line_of(found.value, capsys)
    with pytest.raises(OSError) as found:
        (tmp_path / "b").read_bytes()
    assert errors.disk_fault(found.value) is None
    (tmp_path / "link").symlink_to(gone)
    for name in ("a", "link"):  # a file, and a link to nothing, in the place of a folder
        with pytest.raises(OSError) as found:
            (tmp_path / name).mkdir(exist_ok=True)
        assert f"{tmp_path}/{name}" in line_of(found.value, capsys)


@pytest.mark.parametrize(
    "text",
    [
        "Error while serializing: I/O error: No space left on device (os error 28)",
        "Stale file handle (os error 116)",
        "[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0",
        "[Errno 5] Error reading bytes from file. Detail: [errno 5] Input/output error",
        "unable to open shared memory object </torch_1> in read-write mode: Too many open files",
        "received 0 items of ancdata",
        "database or disk is full", "attempt to write a readonly database", "disk I/O error",
        "can't start new thread", "Parent directory /no/such/folder does not exist.",
        "No usable temporary directory found in ['/no', '/such']",
    ],
)  # fmt: skip
def test_libraries_that_keep_no_number(text, capsys):
    line_of(RuntimeError(text), capsys)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("Permission denied"), RuntimeError("operation not permitted when capturing"),
        RuntimeError("Connection timed out"), OSError("<urlopen error [Errno 111] refused>"),
    ],
)  # fmt: skip
def test_other_errors_stay_as_they_are(error):
    assert errors.disk_fault(error) is None


def test_a_bug_while_a_fault_is_handled_stays_visible():
    try:
        try:
            raise OSError(errno.EIO, "why", "a")
        except OSError:
            {}["key"]
    except KeyError as error:
        assert errors.disk_fault(error) is None


# What really happens at a limit, and where folders go away.
SITUATIONS = {
    "ulimit -n": "h = [open('/dev/null') for _ in range(99)]",
    "ulimit -f": "open('a', 'wb').write(bytes(1 << 20)); ",
    "(now 64)": "h = [os.pipe() for _ in range(99)]",
    "working": "os.rmdir(os.getcwd()); open('a', 'w')",
    "working:": "os.rmdir(os.getcwd()); os.getcwd()",
    "TMPDIR": "os.rmdir(os.getcwd()); import tempfile; tempfile._candidate_tempdir_list = "
    "lambda: ['/no/such']; tempfile.TemporaryFile()",
    "x" * 256: "open('x' * 256, 'w')",
    "a/b": "open('a', 'w').close(); os.makedirs('a/b/c')",
}  # fmt: skip


@pytest.mark.parametrize("named", SITUATIONS)
def test_real_limits_and_folders(named, tmp_path):
    folder = tmp_path / "working"
    folder.mkdir()
    code = f"import os\nfrom pipeline import errors\ndef main():\n    {SITUATIONS[named]}\n"
    code += "errors.run_cli(main)"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PWD"] = str(folder)  # as a shell has it
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=env, preexec_fn=limit, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and named in line


def test_a_checkpoint_that_cannot_be_read_now_is_not_passed_over(tmp_path, monkeypatch):
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        state = tmp_path / f"checkpoint-{step}" / run_folder.STATE
        state.write_text('{"global_step": 1}', encoding="utf-8")
    read_bytes = Path.read_bytes

    def fail(path):
        if "checkpoint-2" in str(path) or path.name == run_folder.RUN_FILE:
            raise OSError(errno.ESTALE, "why", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError):
        run_folder.last_checkpoint(tmp_path)
    with pytest.raises(OSError):
        run_folder.read_run(tmp_path)


def test_a_networks_error_is_not_the_disks():
    with pytest.raises(OSError) as caught:
        socket.create_connection(("localhost", 9), timeout=1e-9)
    name_unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    for error in (caught.value, name_unknown, ssl.SSLError(1, "certificate verify failed")):
        assert faults.find_fault(error, []) is None
