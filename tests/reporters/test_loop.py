"""The loop helper reports, saves when asked, holds and stops; for plain Python."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwarden.reporters import Recorder
from trainwarden.reporters.loop import TrainingLoop
from trainwarden.reporters.wire import Command, Reply


def writer(folder: Path) -> Callable[[int], Path]:
    def save(step: int) -> Path:
        path = folder / f"{step}.json"
        path.write_text(json.dumps({"step": step}))
        return path

    return save


def test_each_step_is_reported_with_its_metrics() -> None:
    with Recorder() as recorder, TrainingLoop(total=3) as loop:
        seen = []
        for step, batch in loop.steps("abcdef"):
            loop.log(loss=float(step))
            seen.append((step, batch))

    reports = recorder.reports
    assert seen == [(1, "a"), (2, "b"), (3, "c")]
    assert recorder.metrics("loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert (reports[-1].phase, reports[-1].step, reports[-1].total) == ("done", 3, 3)


def test_the_first_report_of_a_resumed_loop_carries_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_RESUME_FROM", "somewhere/40.json")
    with Recorder() as recorder, TrainingLoop(total=42) as loop:
        assert loop.resume_path == "somewhere/40.json"
        assert [step for step, _ in loop.steps(range(9), start=40)] == [41, 42]

    assert (recorder.reports[0].step, recorder.reports[0].total) == (40, 42)


def test_several_epochs_and_accumulation_count_optimizer_steps() -> None:
    with Recorder() as recorder, TrainingLoop() as loop:
        for _ in range(2):
            steps = [step for step, _ in loop.steps(range(6), accumulate=3)]
            loop.log(loss=1.0)

    assert steps == [3, 3, 3, 4, 4, 4]
    assert recorder.reports[-1].step == 4


def test_a_checkpoint_that_is_asked_for_is_saved_proven_and_answered(tmp_path: Path) -> None:
    with Recorder() as recorder, TrainingLoop(total=5, save=writer(tmp_path)) as loop:
        for step, _ in loop.steps(range(5)):
            if step == 2:
                replies = recorder.send(Command(id="c", run="", op="checkpoint"))

    final = recorder.wait(replies)
    assert final is not None
    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["2.json"]
    assert recorder.reports[-1].checkpoint == final.checkpoint


def test_a_stop_ends_all_epochs_after_its_checkpoint(tmp_path: Path) -> None:
    with Recorder() as recorder, TrainingLoop(total=50, save=writer(tmp_path)) as loop:
        steps = []
        for _ in range(5):
            for step, _ in loop.steps(range(10)):
                steps.append(step)
                if step == 12:
                    replies = recorder.send(Command(id="c", run="", op="stop"))

    assert steps == list(range(1, 13))
    assert loop.should_stop
    final = recorder.wait(replies)
    assert final is not None
    assert final.state == "saved"
    assert (recorder.reports[-1].phase, recorder.reports[-1].step) == ("done", 12)


def test_a_hold_keeps_the_loop_at_its_border_until_the_release(tmp_path: Path) -> None:
    with Recorder() as recorder, TrainingLoop(total=5, save=writer(tmp_path)) as loop:
        for step, _ in loop.steps(range(5)):
            if step == 2:
                replies = recorder.send(Command(id="c", run="", op="checkpoint", hold=True, holdFor=60.0))
                recorder.send(Command(id="r", run="", op="release"))  # ends the hold that is to come

    final = recorder.wait(replies)
    assert final is not None
    assert final.state == "saved"
    assert recorder.reports[-1].step == 5


def test_a_save_that_fails_is_answered_and_training_goes_on(tmp_path: Path) -> None:
    def full(step: int) -> str:
        raise OSError(28, "No space left on device")

    with Recorder() as recorder, TrainingLoop(total=4, save=full) as loop:
        for step, _ in loop.steps(range(4)):
            if step == 2:
                replies = recorder.send(Command(id="c", run="", op="checkpoint", hold=True))

    final = recorder.wait(replies)
    assert final is not None
    assert (final.state, "No space left" in final.reason) == ("failed", True)
    assert (recorder.reports[-1].phase, recorder.reports[-1].step) == ("done", 4)


def test_a_save_that_wrote_nothing_is_no_proof(tmp_path: Path) -> None:
    with Recorder() as recorder, TrainingLoop(total=3, save=lambda step: tmp_path / "missing") as loop:
        for step, _ in loop.steps(range(3)):
            if step == 1:
                replies = recorder.send(Command(id="c", run="", op="checkpoint"))

    final = recorder.wait(replies)
    assert final is not None
    assert (final.state, "nothing was written" in final.reason) == ("failed", True)


def test_a_loop_that_can_not_save_says_so() -> None:
    replies: list[Reply] = []
    with Recorder(), TrainingLoop(total=3) as loop:
        for step, _ in loop.steps(range(3)):
            if step == 1:
                loop.reporter.commands.ask(Command(id="c", run=loop.reporter.run, op="checkpoint"), replies.append)

    assert [reply.state for reply in replies] == ["unsupported"]


def test_own_checkpoints_are_announced(tmp_path: Path) -> None:
    with Recorder() as recorder, TrainingLoop(total=7, save=writer(tmp_path), save_every=3) as loop:
        for _ in loop.steps(range(7)):
            pass
        own = tmp_path / "mine.json"
        own.write_text("{}")
        loop.saved(own)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.json", "6.json", "mine.json"]
    checkpoint = recorder.reports[-1].checkpoint
    assert checkpoint is not None
    assert (checkpoint.step, Path(checkpoint.path).name) == (7, "mine.json")


def test_an_exception_in_own_save_is_the_users(tmp_path: Path) -> None:
    def full(step: int) -> str:
        raise OSError(28, "No space left on device")

    with (
        Recorder() as recorder,
        pytest.raises(OSError, match="No space"),
        TrainingLoop(save=full, save_every=2) as loop,
    ):
        for _ in loop.steps(range(4)):
            pass

    assert (recorder.reports[-1].phase, recorder.reports[-1].step) == ("failed", 2)


def test_evaluation_is_a_phase_of_its_own() -> None:
    with Recorder() as recorder, TrainingLoop(total=2) as loop:
        for step, _ in loop.steps(range(2)):
            loop.log(loss=0.5)
            if step == 2:
                with loop.evaluating():
                    loop.log({"eval/loss": 0.75})

    assert [(report.phase, dict(report.metrics)) for report in recorder.reports if report.metrics] == [
        ("train", {"loss": 0.5}),
        ("eval", {"eval/loss": 0.75}),
        ("train", {"loss": 0.5}),
    ]


def test_metrics_of_a_step_that_failed_are_still_reported() -> None:
    def train() -> None:
        with TrainingLoop(total=9) as loop:
            for step, _ in loop.steps(range(9)):
                loop.log(loss=float("nan") if step == 3 else 1.0)
                if step == 3:
                    raise FloatingPointError("loss is NaN")

    with Recorder() as recorder, pytest.raises(FloatingPointError):
        train()

    assert [str(value) for _, value in recorder.metrics("loss")] == ["1.0", "1.0", "nan"]
    assert recorder.reports[-1].phase == "failed"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"save_on": "rank1"}, "save_on is 'rank1'"),
        ({"save_every": 0, "save": str}, "save_every is 0"),
        ({"save_every": 5}, "save_every is 5"),
    ],
)
def test_arguments_that_can_not_work_are_refused(arguments: dict[str, object], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        TrainingLoop(**arguments)  # type: ignore[arg-type]  # wrong on purpose
