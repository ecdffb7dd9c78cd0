"""The reporter in a training's hands, recorded just short of the wire."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from tests.reporters.nats_server import eventually
from tests.reporters.test_wire import schema

from trainwarden.reporters import Recorder, Reporter, resume_from
from trainwarden.reporters.wire import Command, encode


def test_without_a_url_the_reporter_is_inactive_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trainwarden.reporters")
    threads = threading.active_count()

    with Reporter(job="bert") as reporter:
        reporter.report(1, loss=1.0)
        reporter.set_phase("eval")
        reporter.checkpoint_saved("/nowhere", step=1)
        assert not reporter.active
        assert reporter.commands.pending() is None
        assert threading.active_count() == threads

    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("DEBUG", "reporter inactive: TRAINWARDEN_NATS_URL is not set")
    ]


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"TRAINWARDEN_DISABLED": "1", "TRAINWARDEN_JOB": "bert"}, "TRAINWARDEN_DISABLED"),
        ({"RANK": "1", "WORLD_SIZE": "2", "TRAINWARDEN_JOB": "bert"}, "rank 1"),
        ({}, "no job is known"),
        ({"TRAINWARDEN_JOB": "a.b"}, "subject"),
    ],
    ids=["disabled", "another rank", "no job", "bad name"],
)
def test_an_inactive_reporter_says_why(
    environ: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "trainwarden.reporters")
    monkeypatch.setenv("TRAINWARDEN_NATS_URL", "nats://127.0.0.1:1")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert not Reporter().active
    assert why in caplog.text


def test_reports_are_recorded_in_order_with_what_was_given() -> None:
    with Recorder() as recorder, Reporter(total=10, epochs=1, world=4) as reporter:
        reporter.report(1, {"loss": 2.0}, lr=0.1, epoch=0.1)
        reporter.report(step=2, loss=1.0)
        reporter.report(step=3, metrics={"loss": 0.5, "step": 7}, total=20)
        reporter.report(4, {"loss": np.float32(0.25)}, metrics=1, step=2)

    reports = recorder.reports
    assert [(report.seq, report.step, report.phase) for report in reports] == [
        (0, 0, "init"),
        (1, 1, "train"),
        (2, 2, "train"),
        (3, 3, "train"),
        (4, 4, "train"),
        (5, 4, "done"),
    ]
    assert reports[1].metrics == {"loss": 2.0, "lr": 0.1}
    assert (reports[1].total, reports[1].epochs, reports[1].epoch, reports[1].world) == (10, 1.0, 0.1, 4)
    assert (reports[3].total, reports[3].epoch) == (20, 0.1)
    assert reports[4].metrics == {"loss": 0.25, "metrics": 1.0, "step": 2.0}
    assert recorder.metrics("loss") == [(1, 2.0), (2, 1.0), (3, 0.5), (4, 0.25)]


def test_what_the_reporter_sends_fits_the_schema() -> None:
    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(1, {"loss": float("nan"), "損失/école": 1, "x" * 999: True})

    validator = jsonschema.Draft202012Validator(schema("report"))
    for report in recorder.reports:
        validator.validate(__import__("json").loads(encode(report)))


def test_the_caller_may_change_its_values_afterwards() -> None:
    metrics: dict[str, Any] = {"loss": np.array(1.0)}
    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(1, metrics)
        metrics["loss"] += 1
        reporter.report(2, metrics)
        metrics.clear()

    assert recorder.metrics("loss") == [(1, 1.0), (2, 2.0)]


@pytest.mark.parametrize(
    "arguments",
    [
        (("seven",), {"loss": 1.0}),
        ((None,), {"loss": 1.0}),
        ((-1,), {"loss": 1.0}),
        ((1.5,), {"loss": 1.0}),
        ((), {"loss": 1.0}),
        ((1, ["loss", 1.0]), {}),
        ((1, 7), {}),
        ((), {"step": 1, "metrics": 7}),
    ],
    ids=str,
)
def test_a_bad_call_is_counted_and_told_once_and_raises_nothing(
    arguments: tuple[tuple[Any, ...], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    positional, named = arguments
    with Recorder() as recorder, Reporter() as reporter:
        for _ in range(3):
            reporter.report(*positional, **named)
        reporter.report(5, loss=1.0)

    assert recorder.metrics("loss") == [(5, 1.0)]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert 3 in reporter.counts.values()


def test_bad_values_leave_the_rest_of_a_report_alone(caplog: pytest.LogCaptureFixture) -> None:
    with Recorder() as recorder, Reporter(total="many") as reporter:  # type: ignore[arg-type]
        reporter.report(1, loss=1.0, note="fine", nothing=None)
        reporter.report(2, loss=0.5, epoch="first", total=-1)  # type: ignore[arg-type]
        reporter.report(3, loss=0.25, epoch=float("nan"))

    assert recorder.metrics("loss") == [(1, 1.0), (2, 0.5), (3, 0.25)]
    assert all(report.total is None and report.epoch is None for report in recorder.reports)
    assert reporter.counts["metric value"] == 2
    assert "single number" in caplog.text


def test_phases_are_restored() -> None:
    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(1, loss=1.0)
        with reporter.phase("eval"):
            reporter.report(1, {"eval/loss": 1.1})
            with pytest.raises(ValueError, match="disk"), reporter.phase("checkpoint"):
                raise ValueError("disk")
        reporter.set_phase("warmup")  # type: ignore[arg-type]
        reporter.set_phase("done")
        reporter.report(2, loss=0.9)

    assert [report.phase for report in recorder.reports] == [
        "init", "train", "eval", "eval", "checkpoint", "eval", "train", "train", "done"
    ]  # fmt: skip


def test_the_end_is_told_once_and_nothing_after_it() -> None:
    with Recorder() as recorder:
        reporter = Reporter()
        reporter.report(1, loss=1.0)
        reporter.fail("out of memory")
        reporter.finish()
        reporter.report(2, loss=1.0)
        reporter.close()
        reporter.close()
        reporter.report(3, loss=1.0)

    assert [(report.phase, report.reason) for report in recorder.reports] == [
        ("init", None), ("train", None), ("failed", "out of memory")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "phase", "reason"),
    [
        (KeyboardInterrupt(), "failed", "KeyboardInterrupt: "),
        (SystemExit(0), "done", None),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (RuntimeError("CUDA error"), "failed", "RuntimeError: CUDA error"),
    ],
    ids=["interrupt", "exit 0", "exit 3", "error"],
)
def test_how_a_training_leaves_is_how_it_ended(error: BaseException, phase: str, reason: str | None) -> None:
    def train() -> None:
        with Reporter():
            raise error

    with Recorder() as recorder, pytest.raises(type(error)):
        train()

    assert (recorder.reports[-1].phase, recorder.reports[-1].reason) == (phase, reason)


def test_a_checkpoint_is_announced_with_its_proof(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(5, loss=1.0)
        reporter.checkpoint_saved(tmp_path, step=5)

    found = recorder.reports[-1].checkpoint
    assert found is not None
    assert (found.step, found.path, found.bytes) == (5, str(tmp_path), 7)


def test_an_incomplete_checkpoint_is_not_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Recorder() as recorder, Reporter() as reporter:
        reporter.checkpoint_saved(tmp_path / "nowhere", step=5)
        reporter.checkpoint_saved(7, step="x")  # type: ignore[arg-type]

    assert all(report.checkpoint is None for report in recorder.reports)
    assert "step 5 is not announced" in caplog.text


def test_an_older_checkpoint_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    with Recorder() as recorder, Reporter() as reporter:
        for step in (9, 5):
            reporter.checkpoint_saved(tmp_path, step=step)
            assert reporter.flush()

    found = recorder.reports[-1].checkpoint
    assert found is not None
    assert found.step == 9


def test_a_command_reaches_the_loop_and_its_proof_the_recorder(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    saves = 0
    with Recorder() as recorder:
        replies = recorder.send(Command(id="c1", run="", op="checkpoint"))
        with Reporter() as reporter:
            reporter.commands.supports("checkpoint")
            for step in range(20):
                reporter.report(step, loss=1.0)
                if command := reporter.commands.pending():
                    reporter.commands.saved(command, path=tmp_path, step=step)
                    saves += 1
        final = recorder.wait(replies)

    assert saves == 1
    assert final is not None
    assert [reply.state for reply in replies] == ["accepted", "saved"]
    assert final.checkpoint is not None
    assert final.checkpoint.bytes == 7
    assert recorder.reports[-1].checkpoint == final.checkpoint


def test_a_recorder_waits_no_longer_than_it_is_told() -> None:
    with Recorder() as recorder, Reporter() as reporter:
        reporter.commands.supports("checkpoint")
        replies = recorder.send(Command(id="c1", run="", op="checkpoint"), until_final=True, timeout=0.01)
        assert recorder.send(Command(id="c1", run="someone else", op="checkpoint")) == []
        assert [reply.state for reply in replies] == ["accepted"]

    assert [reply.state for reply in replies] == ["accepted", "failed"]


def test_recorders_nest_and_end() -> None:
    with Recorder() as outer:
        with Recorder() as inner:
            Reporter().close()
        Reporter(recorder=inner).close()
        Reporter().close()
    assert not Reporter().active

    assert (len({report.run for report in outer.reports}), len({report.run for report in inner.reports})) == (1, 2)


def test_a_copied_or_unpickled_reporter_is_inactive() -> None:
    with Recorder() as recorder, Reporter() as reporter:
        holder = {"reporter": reporter}
        for other in (copy.deepcopy(holder)["reporter"], copy.copy(reporter), pickle.loads(pickle.dumps(reporter))):
            assert not other.active
            other.report(1, loss=1.0)
        assert reporter.active

    assert recorder.metrics("loss") == []


async def test_a_reporter_that_is_dropped_sends_the_rest_and_its_thread_ends() -> None:
    before = set(threading.enumerate())
    with Recorder() as recorder:
        reporter = Reporter()
        reporter.report(1, loss=1.0)
        del reporter
        gc.collect()
        await eventually(lambda: set(threading.enumerate()) <= before)

    assert recorder.metrics("loss") == [(1, 1.0)]


async def test_a_reporter_works_where_an_event_loop_runs_as_in_a_notebook() -> None:
    assert asyncio.get_running_loop().is_running()

    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(1, loss=1.0)

    assert recorder.metrics("loss") == [(1, 1.0)]


def test_heartbeats_repeat_the_step_without_metrics() -> None:
    with Recorder() as recorder, Reporter(heartbeat_seconds=0.05) as reporter:
        reporter.report(3, loss=1.0)
        deadline = threading.Event()
        while len(recorder.reports) < 5 and not deadline.wait(0.01):
            pass

    beats = recorder.reports[2:-1]
    assert len(beats) >= 3
    assert all((report.step, dict(report.metrics), report.phase) == (3, {}, "train") for report in beats)


def test_a_thousand_metrics_are_kept_and_more_are_counted() -> None:
    with Recorder() as recorder, Reporter() as reporter:
        reporter.report(1, {f"layer/{number}/norm": float(number) for number in range(1000)})
        reporter.report(2, {f"layer/{number}/norm": float(number) for number in range(1001)})
        reporter.report(3, loss=1.0)

    assert [len(report.metrics) for report in recorder.reports[1:4]] == [1000, 1000, 1]
    assert [report.trimmed for report in recorder.reports[1:4]] == [0, 1, 1]
    assert reporter.counts["trimmed"] == 1


def test_a_resumed_training_knows_where_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resume_from() is None
    monkeypatch.setenv("TRAINWARDEN_RESUME_FROM", "/out/checkpoint-7")
    assert resume_from() == "/out/checkpoint-7"

    with Recorder() as recorder:
        Reporter(step=7).close()
    assert recorder.reports[0].step == 7


def test_a_disabled_environment_does_not_disable_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_DISABLED", "1")

    with Recorder() as recorder:
        Reporter().close()
        Reporter(enabled=False).close()

    assert len({report.run for report in recorder.reports}) == 1


def test_signal_handlers_and_the_environment_are_left_alone() -> None:
    import signal

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    environ = dict(os.environ)
    with Recorder(), Reporter() as reporter:
        reporter.report(1, loss=1.0)

    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    assert dict(os.environ) == environ


class Unreadable:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class OddFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("no number")

    __str__ = __repr__ = Unreadable.__str__


class OddInt(int):
    def __float__(self) -> float:
        raise RuntimeError("no number")

    __int__ = __index__ = __float__  # type: ignore[assignment]
    __str__ = __repr__ = Unreadable.__str__


class OddError(Exception):
    __str__ = __repr__ = Unreadable.__str__


ODD: list[Any] = [Unreadable(), OddFloat(2.0), OddInt(2), 10**400, 10**5000, -(10**5000), "x" * 10_000, object(), {}]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_one_odd_value_takes_no_other_along(odd: Any) -> None:
    with Recorder() as recorder:
        reporter = Reporter(total=odd, epochs=odd)
        reporter.report(1, loss=1.0, odd=odd)
        reporter.report(2, {"loss": 2.0}, epoch=odd, total=10)
        reporter.report(3, {"loss": 3.0}, epochs=odd, epoch=0.5)
        named: dict[Any, object] = {"loss": 4.0, odd if odd.__hash__ else None: 1.0}
        reporter.report(4, named)
        reporter.set_phase(odd)
        reporter.report(odd, loss=9.0)
        reporter.close()

    reports = {report.step: report for report in recorder.reports if report.metrics}
    assert {step: reports[step].metrics["loss"] for step in (1, 2, 3, 4)} == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert "odd" not in reports[1].metrics
    assert reports[2].total == 10
    assert reports[3].epoch == 0.5


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_a_failure_is_told_whatever_its_reason_is(odd: Any) -> None:
    with Recorder() as recorder:
        reporter = Reporter()
        reporter.fail(odd)
        reporter.close()

    assert recorder.reports[-1].phase == "failed"


def test_an_exception_without_a_text_is_a_failure() -> None:
    with Recorder() as recorder, pytest.raises(OddError), Reporter():
        raise OddError

    assert recorder.reports[-1].phase == "failed"
    assert recorder.reports[-1].reason == "OddError: a OddError whose text can't be had (RuntimeError)"
