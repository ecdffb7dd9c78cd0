"""`trainwarden run` on real processes and a real nats-server: each way to end has one outcome, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.controller.local.running import TRAINING, alive, policy, start, trainwarden, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]

PYTHON = sys.executable
NEVER = policy("metrics.loss > 1e9")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def written(folder: Path, text: str) -> str:
    (folder / "policy.yaml").write_text(text)
    return "policy.yaml"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ([PYTHON, "-c", "raise SystemExit(0)"], 0, "complete after"),
        ([PYTHON, "-c", "raise SystemExit(3)"], 3, "failed with exit code 3"),
        ([PYTHON, "-c", "import os; os.kill(os.getpid(), 15)"], 143, "ended by signal 15 after"),
        (["/nowhere/train"], 127, "was not found"),
        (["/etc/passwd"], 126, "can't be executed"),
    ],
    ids=["completes", "fails", "dies of a signal", "is not there", "is no program"],
)
def test_the_end_of_a_command_is_passed_on(folder: Path, command: list[str], code: int, said: str) -> None:
    run = trainwarden(folder, "run", "--policy", written(folder, NEVER), "--", *command)

    assert run.code == code, run.output
    assert said in run.output


def test_a_policy_with_errors_starts_nothing(folder: Path) -> None:
    file = written(folder, policy("metrics.loss > 'high'").replace("mode: Enforce", "mode: Enforced"))

    run = trainwarden(folder, "run", "--policy", file, "--", PYTHON, "-c", "open('started', 'w')")

    assert run.code == 2
    assert "policy.yaml:5:9: spec.mode: 'Enforced'; did you mean Enforce?" in run.output
    assert not (folder / "started").exists()


def test_a_run_is_suspended_after_its_proof_and_resumed_from_it(folder: Path) -> None:
    file = written(folder, policy("progress.step > 100", "{type: Suspend}"))

    run = trainwarden(folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py")

    assert run.code == 75, run.output
    (suspended,) = run.acted("Suspend", "Done")
    proof = suspended["proof"]
    assert proof["digest"].startswith("sha256:")
    assert json.loads(Path(proof["path"]).read_text())["step"] == proof["step"]
    record = json.loads(next((folder / ".trainwarden" / "runs").glob("*/run.json")).read_text())
    assert record["state"] == "suspended"
    assert record["checkpoint"]["step"] == proof["step"]

    resumed = trainwarden(folder, "resume", STEPS=str(proof["step"] + 200))

    assert resumed.code == 0, resumed.output
    assert f"resumed at {proof['step']}" in resumed.output
    assert f"completed at {proof['step'] + 200}" in resumed.output


def test_a_checkpoint_that_has_changed_is_not_resumed_from(folder: Path) -> None:
    file = written(folder, policy("progress.step > 50", "{type: Suspend}"))
    run = trainwarden(folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py")
    (suspended,) = run.acted("Suspend", "Done")
    Path(suspended["proof"]["path"]).write_text('{"step": 7}')

    refused = trainwarden(folder, "resume")
    forced = trainwarden(folder, "resume", "--force", STEPS="20")

    assert refused.code == 2
    assert "is not what the training proved" in refused.output
    assert "resumed at 7" in forced.output


@pytest.mark.parametrize(("action", "code", "state"), [("Stop", 76, "stopped"), ("Delete", 77, "deleted")])
def test_a_run_is_stopped_or_deleted(folder: Path, action: str, code: int, state: str) -> None:
    file = written(folder, policy("progress.step > 50", f"{{type: {action}, checkpoint: BestEffort}}"))

    run = trainwarden(folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py")

    assert run.code == code, run.output
    assert len(run.acted(action, "Done")) == 1
    assert "completed at" not in run.output
    record = json.loads(next((folder / ".trainwarden" / "runs").glob("*/run.json")).read_text())
    assert record["state"] == state


def test_without_a_proven_checkpoint_a_run_is_not_suspended(folder: Path) -> None:
    file = written(folder, policy("progress.step > 50", "{type: Suspend, timeout: 2s}"))

    run = trainwarden(
        folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py", NO_SAVE="1", STEPS="400"
    )

    assert run.code == 0, run.output
    (refused,) = run.acted("Suspend", "Refused")
    assert refused["reason"] == "NoCheckpoint"
    assert "completed at 400" in run.output


def test_an_audit_touches_nothing_and_says_what_it_would_have_done(folder: Path) -> None:
    file = written(folder, policy("progress.step > 50", "{type: Suspend}", mode="Audit"))

    run = trainwarden(
        folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py", STEPS="200"
    )

    assert run.code == 0, run.output
    assert len(run.acted("Suspend", "WouldAct")) == 1
    assert run.acted("Suspend", "Requested") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on_to_the_training(folder: Path, number: int, code: int) -> None:
    (folder / "train.py").write_text(
        "import signal, sys, time\n"
        "def heed(number, frame):\n    open('heard', 'w').write(str(number)); sys.exit(9)\n"
        "signal.signal(signal.SIGINT, heed); signal.signal(signal.SIGTERM, heed)\n"
        "open('ready', 'w')\ntime.sleep(60)\n"
    )
    process = start(folder, "run", "--policy", written(folder, NEVER), "--", PYTHON, "train.py")
    assert wait_until((folder / "ready").exists)

    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=40)

    assert process.returncode == code, output
    assert (folder / "heard").read_text() == str(int(number))


def test_a_kill_of_trainwarden_leaves_no_process_behind(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        "open('ready', 'w')\ntime.sleep(300)\n"
    )
    marker = f"TEST_MARKER={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    file = written(folder, NEVER)
    process = start(folder, "run", "--policy", file, "--", PYTHON, "train.py", **{name: value})
    assert wait_until((folder / "ready").exists)
    assert len(alive(marker)) >= 5  # trainwarden, two keepers, nats-server, the training and its child

    process.kill()
    process.communicate(timeout=40)

    assert wait_until(lambda: not alive(marker), within=30), alive(marker)


def test_what_a_command_leaves_behind_is_ended(folder: Path) -> None:
    marker = f"TEST_MARKER={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    leaving = "import subprocess, sys; subprocess.Popen(['sleep', '300'], start_new_session=True)"

    run = trainwarden(folder, "run", "--policy", written(folder, NEVER), "--", PYTHON, "-c", leaving, **{name: value})

    assert run.code == 0, run.output
    assert alive(marker) == []


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        run = trainwarden(
            folder, "run", "--policy", written(folder, NEVER), "--nats-port", port, "--", PYTHON, "train.py"
        )

    assert run.code == 70
    assert "address already in use" in run.output
    assert "--nats-port" in run.output


def test_a_folder_that_cannot_be_written_is_said(folder: Path) -> None:
    (folder / "file").write_text("")

    run = trainwarden(
        folder,
        "run",
        "--policy",
        written(folder, NEVER),
        "--",
        PYTHON,
        "train.py",
        TRAINWARDEN_HOME=str(folder / "file"),
    )

    assert run.code == 70
    assert "can't be written" in run.output
    assert "TRAINWARDEN_HOME" in run.output


def test_a_decision_log_that_fills_up_ends_but_the_run_goes_on(folder: Path) -> None:
    file = written(folder, policy("progress.step > 20"))

    run = trainwarden(folder, "run", "--policy", file, "--log", "/dev/full", "--", PYTHON, "train.py", STEPS="100")

    assert "completed at 100" in run.output
    assert "/dev/full can't be written: No space left on device" in run.output


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A real HTTP receiver: its Apprise URL, and what it was sent."""
    messages: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the library
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_address[1]}/secret-path", messages
    server.shutdown()
    server.server_close()


def test_one_message_tells_of_the_suspension_with_its_checkpoint(
    folder: Path, receiver: tuple[str, list[dict[str, str]]]
) -> None:
    url, messages = receiver
    file = written(folder, policy("progress.step > 100", "{type: Notify, channels: [team]}", "{type: Suspend}"))

    run = trainwarden(
        folder, "run", "--policy", file, "--notify", url, "--price-per-hour", "9", "--", PYTHON, "train.py"
    )

    assert run.code == 75, run.output
    (message,) = messages
    assert "suspended" in message["title"]
    assert "sha256:" in message["message"]
    assert "trainwarden resume train-" in message["message"]
    assert "secret-path" not in run.output
    assert "there is no channel 'team' here" in run.output
    for file_ in (folder / ".trainwarden").rglob("*"):
        if file_.is_file():
            assert b"secret-path" not in file_.read_bytes(), file_


def test_resuming_tells_and_logs_where_the_run_did(folder: Path, receiver: tuple[str, list[dict[str, str]]]) -> None:
    url, messages = receiver
    (folder / "notify.txt").write_text(url)
    (folder / "notify.txt").chmod(0o600)
    options = ["--policy", written(folder, policy("progress.step > 50", "{type: Suspend}"))]
    options += ["--notify-file", "notify.txt", "--log", "decisions.jsonl"]
    run = trainwarden(folder, "run", *options, "--", PYTHON, "train.py")
    assert run.code == 75, run.output
    told, logged = len(messages), len(run.decisions)
    (folder / "other.yaml").write_text(policy("progress.step > 50", "{type: Notify}", name="other"))

    resumed = trainwarden(folder, "resume", "--policy", "other.yaml", STEPS="300")

    assert resumed.code == 0, resumed.output
    assert len(messages) == told + 1
    assert len(resumed.decisions) > logged


def test_every_line_of_the_decision_log_is_whole(folder: Path) -> None:
    file = written(folder, policy("progress.step > 20", "{type: Notify}"))

    run = trainwarden(
        folder, "run", "--policy", file, "--log", "decisions.jsonl", "--", PYTHON, "train.py", STEPS="100"
    )

    assert run.decisions, run.output
    fields = {
        "id",
        "time",
        "run",
        "policy",
        "rule",
        "verdict",
        "reason",
        "message",
        "evidence",
        "action",
        "actionState",
    }
    assert all(fields <= set(decision) for decision in run.decisions)
    assert len({decision["id"] for decision in run.decisions}) == len(run.decisions)
