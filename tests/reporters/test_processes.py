"""Forks, exits and imports: what a reporter does to processes, seen from outside."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from tests.reporters.nats_server import Ear, NatsServer, eventually

from trainwarden.reporters import Recorder, Reporter

PATIENCE = 60


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **environ},
    )


def forked(work: Callable[[], None]) -> int:
    """Exit code of a forked child that does some work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


fork_is_there = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@fork_is_there
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_forked_child_is_silent_and_leaves_the_parents_connection_alone(ear: Ear, job: NatsServer) -> None:
    with Reporter() as reporter:
        reporter.report(1, loss=1.0)
        await ear.until(lambda heard: any(report["step"] == 1 for report in heard))

        def child() -> None:
            assert not reporter.active
            for step in range(100, 200):
                reporter.report(step, loss=1.0)
            reporter.commands.supports("checkpoint")
            reporter.fail("child")
            reporter.close(5)

        assert [forked(child) for _ in range(3)] == [0, 0, 0]
        reporter.report(2, loss=1.0)

    reports = await ear.until(lambda heard: heard[-1]["phase"] == "done")
    assert [report["step"] for report in reports] == [0, 1, 2, 2]
    assert reporter.counts["connects"] == 1


@fork_is_there
async def test_a_child_forked_while_the_reporter_starts_can_import_and_exit(job: NatsServer) -> None:
    script = """
import os, sys
from trainwarden.reporters import Reporter
reporter = Reporter()
child = os.fork()
import asyncio, ssl, nats
reporter.report(1, loss=1.0)
if child == 0:
    sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(0 if status == 7 else 1)
"""
    job.start()

    for _ in range(3):
        done = run(script.replace("import os, sys", "import os, sys, warnings; warnings.simplefilter('ignore')"))
        assert (done.returncode, done.stderr) == (0, "")


def _threads_of_ours(_: int) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("trainwarden")]


def test_a_spawned_process_reports_only_if_it_makes_a_reporter() -> None:
    with Recorder(), Reporter() as reporter, multiprocessing.get_context("spawn").Pool(1) as pool:
        reporter.report(1, loss=1.0)
        assert _threads_of_ours(0)
        assert pool.map(_threads_of_ours, [1]) == [[]]


async def test_a_training_that_just_ends_sends_all_it_reported(ear: Ear, job: NatsServer) -> None:
    done = run("""
from trainwarden.reporters import Reporter
reporter = Reporter()
for step in range(100):
    reporter.report(step, loss=1.0)
""")

    assert (done.returncode, done.stderr) == (0, "")
    reports = await ear.until(lambda heard: len(heard) >= 101)
    assert reports[-1]["step"] == 99
    assert reports[-1]["phase"] == "train"


async def test_a_training_that_exits_at_once_by_name_of_host_still_sends(
    ear: Ear, job: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_NATS_URL", job.url.replace("127.0.0.1", "localhost"))

    done = run("from trainwarden.reporters import Reporter; Reporter().finish()")

    assert (done.returncode, done.stderr) == (0, "")
    await ear.until(lambda heard: heard and heard[-1]["phase"] == "done")


@pytest.mark.parametrize("state", ["down", "stalled"])
async def test_an_exit_is_not_held_up_by_a_server_that_does_not_answer(
    server: NatsServer, job: NatsServer, state: str
) -> None:
    if state == "stalled":
        server.start()
        server.pause()

    done = run("""
from trainwarden.reporters import Reporter
reporters = [Reporter() for _ in range(50)]
for reporter in reporters:
    reporter.report(1, loss=1.0)
""")

    assert done.returncode == 0  # within PATIENCE, which fifty exits one after the other would outlast
    assert "Traceback" not in done.stderr


def test_importing_the_reporter_imports_nothing_heavy() -> None:
    done = run("""
import sys
import trainwarden.reporters
heavy = {"asyncio", "ssl", "nats", "numpy", "torch", "transformers", "lightning", "email", "uuid", "hashlib"}
print(sorted(heavy & set(sys.modules)))
""")

    assert done.stdout.strip() == "[]", done.stderr


async def test_a_training_that_is_killed_leaves_no_trace_but_its_reports(ear: Ear, job: NatsServer) -> None:
    script = "import time\nfrom trainwarden.reporters import Reporter\nr = Reporter()\nr.report(1)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        await ear.until(lambda heard: any(report["step"] == 1 for report in heard))
    finally:
        process.kill()
    await eventually(lambda: process.poll() is not None)

    assert [report["phase"] for report in ear.reports] == ["init", "train"]
