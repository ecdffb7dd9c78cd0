"""What befalls trainwarden itself is said, ends no training, and is mended where it can be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.controller.local.running import (
    TRAINING,
    alive,
    policy,
    start,
    start_under_nohup,
    trainwarden,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]

PYTHON = sys.executable
NEVER = policy("metrics.loss > 1e9")
LATER = policy("progress.step > 500", "{type: Suspend}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "never.yaml").write_text(NEVER)
    (tmp_path / "later.yaml").write_text(LATER)
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Fill a disk up, but for some bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range((free.f_bavail * free.f_frsize - leave) // 4096):
            file.write(bytes(4096))
    return filler


def nats_server(folder: Path) -> int:
    """The process of the nats-server whose files are below a folder; 0 when there is none."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"nats-server") and any(str(folder).encode() in word for word in words):
            return int(entry.parent.name)
    return 0


def test_a_nats_server_that_dies_is_started_again_and_the_policy_still_acts(folder: Path) -> None:
    process = start(folder, "run", "--policy", "later.yaml", "--", PYTHON, "train.py")
    assert wait_until(lambda: (folder / "checkpoints").exists() and nats_server(folder))

    os.kill(nats_server(folder), signal.SIGKILL)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 75, output
    assert "it has died: signal 9); the training goes on unwatched" in output
    assert "the training is watched" in output


@pytest.mark.parametrize("leave", [0, 32_768], ids=["nothing is left", "almost nothing is left"])
def test_a_disk_that_is_full_at_the_start_starts_nothing(folder: Path, small_disk: Path, leave: int) -> None:
    fill(small_disk, leave=leave)

    run = trainwarden(
        folder, "run", "--policy", "never.yaml", "--", PYTHON, "train.py", STEPS="10", TRAINWARDEN_HOME=str(small_disk)
    )

    assert run.code == 70, run.output
    assert "free space" in run.output or "TRAINWARDEN_HOME" in run.output or "give JetStream room" in run.output
    assert "completed" not in run.output
    assert "Traceback" not in run.output


def test_on_a_disk_that_fills_up_the_training_goes_on_unwatched_until_there_is_room(
    folder: Path, small_disk: Path
) -> None:
    process = start(
        folder,
        "run",
        "--policy",
        "later.yaml",
        "--",
        PYTHON,
        "train.py",
        TRAINWARDEN_HOME=str(small_disk),
    )
    assert process.stdout is not None
    said = []
    with process.stdout:
        assert wait_until((folder / "checkpoints").exists)
        filler = fill(small_disk)
        for line in process.stdout:
            said.append(line)
            if "goes on unwatched" in line:
                filler.unlink()
    process.wait(timeout=60)

    output = "".join(said)
    assert "no space left on device" in output
    assert "the training is watched" in output
    assert process.returncode == 75, output


def test_a_disk_that_stays_full_gives_the_trainings_end_and_says_that_it_was_unwatched(
    folder: Path, small_disk: Path
) -> None:
    process = start(
        folder, "run", "--policy", "never.yaml", "--", PYTHON, "train.py", TRAINWARDEN_HOME=str(small_disk), STEPS="500"
    )
    assert wait_until((folder / "checkpoints").exists)

    fill(small_disk)
    output, _ = process.communicate(timeout=90)

    assert "completed at 500" in output
    assert process.returncode == 70, output
    assert "problem  nats-server stored no reports at the end" in output
    assert "Traceback" not in output


def test_files_and_letters_of_the_trainings_folder_do_no_harm(folder: Path) -> None:
    place = folder / 'träin "x" \\y'
    place.mkdir()
    for name in ("select", "subprocess", "signal", "pathlib", "ctypes", "contextlib"):
        (place / f"{name}.py").write_text("raise SystemExit('imported in place of the library')")
    (place / "never.yaml").write_text(NEVER)

    run = trainwarden(place, "run", "--policy", "never.yaml", "--", PYTHON, "-I", "-c", "print('trained')")

    assert run.code == 0, run.output
    assert "trained" in run.output


def test_a_command_reads_what_is_piped_in(folder: Path) -> None:
    command = [PYTHON, "-m", "trainwarden.controller.cli", "run", "--policy", "never.yaml", "--"]

    run = subprocess.run(
        [*command, PYTHON, "-c", "print('read', input())"],
        cwd=folder,
        input="a line\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.stdout == "read a line\n"


def test_output_that_nobody_reads_any_more_ends_no_training(folder: Path) -> None:
    process = start(
        folder,
        "run",
        "--policy",
        "later.yaml",
        "--log",
        "decisions.jsonl",
        "--",
        "sh",
        "-c",
        f"exec {PYTHON} train.py >out.txt 2>&1",
    )
    assert process.stdout is not None
    process.stdout.close()

    assert process.wait(timeout=60) == 75
    assert json.loads((folder / "decisions.jsonl").read_text().splitlines()[-1])["actionState"] == "Done"


def test_a_training_that_ends_while_it_saves_is_noticed_at_once(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINING.replace("path = folder", "os._exit(9); path = folder"))

    run = trainwarden(folder, "run", "--policy", "later.yaml", "--log", "decisions.jsonl", "--", PYTHON, "train.py")

    assert run.code == 9, run.output
    (refused,) = run.acted("Suspend", "Refused")
    assert refused["reason"] == "JobEnded"


def test_a_training_that_holds_for_a_suspension_that_is_not_done_is_released(folder: Path) -> None:
    """It proves what is not in its files, and would otherwise hold for minutes."""
    lie = """
from trainwarden.reporters import proof
proof.measure = lambda path: proof.Measured(1, "sha256:" + 64 * "0")
"""
    (folder / "train.py").write_text(lie + TRAINING)
    (folder / "soon.yaml").write_text(policy("progress.step > 50", "{type: Suspend}"))

    run = trainwarden(
        folder, "run", "--policy", "soon.yaml", "--log", "decisions.jsonl", "--", PYTHON, "train.py", STEPS="300"
    )

    assert run.code == 0, run.output
    assert "completed at 300" in run.output
    (refused,) = run.acted("Suspend", "Refused")
    assert "is not what the training proved" in refused["message"]


def test_a_keeper_that_is_killed_takes_the_training_with_it(folder: Path) -> None:
    marker = f"TEST_MARKER={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    process = start(folder, "run", "--policy", "never.yaml", "--", PYTHON, "train.py", **{name: value})
    assert wait_until((folder / "checkpoints").exists)
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in alive(marker)}
    (keeper,) = [pid for pid, said in words.items() if b"train.py" in said and said[1] == b"-ISB"]

    os.kill(keeper, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 137, output
    assert wait_until(lambda: not alive(marker))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "TERM", "HUP"])
def test_a_signal_before_the_training_starts_keeps_it_from_starting(folder: Path, number: int) -> None:
    process = start(folder, "run", "--policy", "never.yaml", "--", PYTHON, "train.py")
    assert wait_until(lambda: nats_server(folder))

    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)

    if "completed" not in output and not (folder / "checkpoints").exists():
        assert "was not started" in output
    assert process.returncode == 128 + number, output


def test_under_nohup_a_closed_terminal_ends_nothing(folder: Path) -> None:
    process = start_under_nohup(folder, "run", "--policy", "never.yaml", "--", PYTHON, "train.py", STEPS="200")
    assert wait_until(lambda: (folder / "checkpoints").exists() or process.poll() is not None)

    os.kill(process.pid, signal.SIGHUP)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 0, output
    assert "complete after" in output


def test_an_interrupted_run_can_be_resumed_from_its_newest_checkpoint(folder: Path) -> None:
    (folder / "save.yaml").write_text(policy("progress.step > 50", "{type: Checkpoint}"))
    options = ["--policy", "save.yaml", "--log", "log.jsonl", "--name", "mine"]
    process = start(folder, "run", *options, "--", PYTHON, "train.py")
    records = folder / ".trainwarden" / "runs"
    assert wait_until(lambda: any('"checkpoint": {' in path.read_text() for path in records.glob("*/run.json")))

    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    ended = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()][-1]
    assert ended["message"] == "the job is Failed: interrupted by a person's signal"
    assert "resume   trainwarden resume mine-" in output

    resumed = trainwarden(folder, "resume", "mine", STEPS="200")

    assert resumed.code == 0, resumed.output
    assert "resumed at" in resumed.output


def test_resuming_under_other_policies_takes_the_old_ones_away(folder: Path) -> None:
    (folder / "soon.yaml").write_text(policy("progress.step > 50", "{type: Suspend}", name="soon"))
    first = trainwarden(folder, "run", "--policy", "soon.yaml", "--", PYTHON, "train.py")
    assert first.code == 75, first.output

    resumed = trainwarden(folder, "resume", "--policy", "never.yaml", "--log", "decisions.jsonl", STEPS="200")

    assert resumed.code == 0, resumed.output
    assert [d for d in resumed.decisions if d["policy"]["name"] == "soon"] == []
    kept = next((folder / ".trainwarden" / "runs").glob("*/policies"))
    assert [path.read_text() for path in kept.iterdir()] == [NEVER]


def test_a_run_that_lost_its_trainwarden_is_resumed_by_its_name(folder: Path) -> None:
    (folder / "save.yaml").write_text(policy("progress.step > 50", "{type: Checkpoint}"))
    process = start(folder, "run", "--policy", "save.yaml", "--name", "mine", "--", PYTHON, "train.py")
    records = folder / ".trainwarden" / "runs"
    assert wait_until(lambda: any('"checkpoint": {' in path.read_text() for path in records.glob("*/run.json")))
    process.kill()
    process.communicate(timeout=60)

    unnamed = trainwarden(folder, "resume")
    resumed = trainwarden(folder, "resume", "mine", STEPS="200")

    assert unnamed.code == 2
    assert "(interrupted)" in unnamed.output
    assert resumed.code == 0, resumed.output
    assert "resumed at" in resumed.output


def test_a_killed_keeper_leaves_nothing_of_the_command_behind(folder: Path) -> None:
    marker = f"TEST_MARKER={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    (folder / "ign.py").write_text(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\npathlib.Path('ready').touch()\ntime.sleep(600)\n"
    )
    command = ["sh", "-c", f"setsid {PYTHON} ign.py & sleep 600"]
    process = start(folder, "run", "--policy", "never.yaml", "--", *command, **{name: value})
    assert wait_until((folder / "ready").exists)
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in alive(marker)}
    (keeper,) = [pid for pid, said in words.items() if said[1] == b"-ISB" and b"sh" in said]

    os.kill(keeper, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 137, output
    assert not alive(marker)


@pytest.mark.parametrize("code", [75, 76, 77, 130, 143])
def test_a_training_that_ends_with_a_code_of_ours_is_not_said_to_be_ended_by_us(folder: Path, code: int) -> None:
    run = trainwarden(folder, "run", "--policy", "never.yaml", "--", "sh", "-c", f"exit {code}")

    assert run.code == code
    assert f"failed with exit code {code} after" in run.output
    assert "by a policy" not in run.output


def test_a_command_that_is_not_utf_8_is_refused_before_anything_is_made(folder: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-P", "-m", "trainwarden.controller.cli", "run", "--policy", "never.yaml", "--", b"a\xff"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert process.returncode == 2, process.stderr
    assert "the command has '\\udcff', bytes that are not UTF-8" in process.stderr
    assert "Traceback" not in process.stderr
    assert not list((folder / ".trainwarden").glob("runs/*"))


def test_a_log_that_cannot_be_written_leaves_no_run_behind(folder: Path) -> None:
    run = trainwarden(folder, "run", "--policy", "never.yaml", "--log", "/nope/x", "--", "true")

    assert run.code == 2
    assert "--log: /nope/x can't be written: No such file or directory" in run.output
    assert not list((folder / ".trainwarden").glob("runs/*"))


def test_a_receiver_that_wants_to_be_asked_later_is_named_as_not_told(folder: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(429)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the library
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    (folder / "tell.yaml").write_text(policy("progress.step > 5", "{type: Notify}"))
    url = f"json://127.0.0.1:{server.server_address[1]}/x"
    options = ["--policy", "tell.yaml", "--notify", url]
    process = start(folder, "run", *options, "--", PYTHON, "train.py", STEPS="100")
    output = ""
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        server.shutdown()
        server.server_close()

    assert process.returncode == 0, output
    assert "not told json #1" in output
    assert "HTTP 429 Too Many Requests" in output
