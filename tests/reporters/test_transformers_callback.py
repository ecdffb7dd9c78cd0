"""What trainwarden learns from a transformers Trainer, and what a Trainer does when asked."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from tests.reporters.tiny_gpt import At, Sequences, Stream, trainer
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback

from trainwarden.reporters import Recorder
from trainwarden.reporters.transformers import AutomaticCallback, TrainwardenCallback
from trainwarden.reporters.wire import Command, Reply, Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # what transformers and torch warn of is theirs
]

ROOT = Path(__file__).parents[2]


def train(folder: Path, *callbacks: Any, resume: str | None = None, **more: Any) -> list[Report]:
    with Recorder() as recorder:
        trainer(folder, TrainwardenCallback(), *callbacks, **more).train(resume_from_checkpoint=resume)
    return recorder.reports


def asked(folder: Path, command: Command, *, at: int = 3, **more: Any) -> tuple[Reply, list[Report]]:
    """Train with a command that comes within a step; its final reply, and the reports."""
    with Recorder() as recorder:
        sent: list[list[Reply]] = []
        send = At(at, lambda: sent.append(recorder.send(command)))
        trainer(folder, send, TrainwardenCallback(), **more).train()
        final = recorder.wait(sent[0])
    assert final is not None
    return final, recorder.reports


def test_steps_total_and_metrics_are_reported(tmp_path: Path) -> None:
    reports = train(tmp_path)

    assert (reports[0].step, reports[0].total) == (0, 6)
    assert [report.step for report in reports if "loss" in report.metrics] == [1, 2, 3, 4, 5, 6]
    logged = next(report for report in reports if report.step == 3 and report.metrics)
    assert {"loss", "grad_norm", "learning_rate"} <= set(logged.metrics)
    assert "epoch" not in logged.metrics
    assert logged.epoch == pytest.approx(3 / 32)
    assert (reports[-1].phase, reports[-1].step) == ("done", 6)


def test_with_gradient_accumulation_a_step_is_an_optimizer_step(tmp_path: Path) -> None:
    reports = train(tmp_path, gradient_accumulation_steps=4, max_steps=-1, num_train_epochs=1)

    assert reports[0].total == 8
    assert reports[0].epochs == 1
    assert [report.step for report in reports if "loss" in report.metrics] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_evaluation_is_a_phase_and_its_metrics_are_reported(tmp_path: Path) -> None:
    reports = train(tmp_path, eval_strategy="steps", eval_steps=2, eval_dataset=Sequences(8))

    phases = [report.phase for report in reports]
    assert [second for first, second in pairwise(phases) if first != second] == [
        *["train", "eval", "train", "eval", "train", "eval", "train"],
        "done",
    ]
    assert [report.step for report in reports if "eval_loss" in report.metrics] == [2, 4, 6]


def test_evaluation_before_the_first_step_is_a_phase(tmp_path: Path) -> None:
    reports = train(tmp_path, eval_strategy="epoch", eval_on_start=True, eval_dataset=Sequences(8))

    assert ("eval", 0) in [(report.phase, report.step) for report in reports]
    assert (reports[-1].phase, reports[-1].step) == ("done", 6)


def test_the_first_report_of_a_resumed_training_is_right(tmp_path: Path) -> None:
    train(tmp_path, save_strategy="steps", save_steps=4)

    reports = train(tmp_path, resume=str(tmp_path / "checkpoint-4"), max_steps=10)

    assert (reports[0].step, reports[0].total) == (4, 10)
    assert all(report.step >= 4 for report in reports)
    assert reports[-1].step == 10


def test_early_stopping_is_done_before_the_total(tmp_path: Path) -> None:
    reports = train(
        tmp_path,
        EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=1e9),
        eval_strategy="steps",
        eval_steps=2,
        eval_dataset=Sequences(8),
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        max_steps=20,
    )

    assert (reports[-1].phase, reports[-1].step, reports[-1].total) == ("done", 4, 20)


def test_a_stream_has_the_total_of_max_steps_and_no_epochs(tmp_path: Path) -> None:
    reports = train(tmp_path, data=Stream(), max_steps=5)

    assert (reports[0].total, reports[0].epochs) == (5, None)
    assert reports[-1].step == 5


@pytest.mark.parametrize("strategy", ["no", "steps", "epoch"])
def test_a_checkpoint_is_saved_when_asked_for_whatever_the_save_strategy(tmp_path: Path, strategy: str) -> None:
    final, reports = asked(tmp_path, Command(id="c", run="", op="checkpoint"), save_strategy=strategy, save_steps=500)

    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 3)
    assert final.checkpoint is not None
    assert Path(final.checkpoint.path) == tmp_path / "checkpoint-3"
    assert (tmp_path / "checkpoint-3" / "trainer_state.json").exists()
    assert "checkpoint" in [report.phase for report in reports]
    assert (reports[-1].phase, reports[-1].step) == ("done", 6)


def test_a_save_that_comes_by_itself_at_the_same_step_counts(tmp_path: Path) -> None:
    final, _ = asked(tmp_path, Command(id="c", run="", op="checkpoint"), save_strategy="steps", save_steps=3)

    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 3)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]


def test_a_command_within_the_last_step_is_carried_out(tmp_path: Path) -> None:
    final, _ = asked(tmp_path, Command(id="c", run="", op="checkpoint"), at=6)

    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 6)


def test_a_stop_ends_the_training_after_its_checkpoint(tmp_path: Path) -> None:
    final, reports = asked(tmp_path, Command(id="c", run="", op="stop"))

    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 3)
    assert (reports[-1].phase, reports[-1].step) == ("done", 3)


def test_while_it_holds_its_checkpoint_stays_and_after_the_release_it_goes_on(tmp_path: Path) -> None:
    found: list[bool] = []
    with Recorder() as recorder:
        sent: list[list[Reply]] = []

        class Release(TrainwardenCallback):
            """Releases while the checkpoint is there."""

            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == 3:
                    recorder.send(Command(id="r", run="", op="release"))
                super().on_save(args, state, control, **kwargs)
                found.extend([(tmp_path / "checkpoint-3").exists()] if state.global_step == 3 else [])

        command = Command(id="c", run="", op="checkpoint", hold=True, holdFor=60.0)
        trainer(
            tmp_path,
            At(3, lambda: sent.append(recorder.send(command))),
            Release(),
            save_strategy="steps",
            save_steps=1,
            save_total_limit=1,
        ).train()
        final = recorder.wait(sent[0])

    assert final is not None
    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 3)
    assert found == [True]
    assert recorder.reports[-1].step == 6


def test_checkpoints_that_come_by_themselves_are_announced(tmp_path: Path) -> None:
    reports = train(tmp_path, save_strategy="steps", save_steps=3)

    newest = reports[-1].checkpoint
    assert newest is not None
    assert (newest.step, Path(newest.path).name) == (6, "checkpoint-6")
    assert newest.digest is not None


class FullDisk(Trainer):  # type: ignore[misc]  # transformers has no types
    """A Trainer without room for a checkpoint."""

    def _save_checkpoint(self, *given: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")


class NeverSaves(Trainer):  # type: ignore[misc]  # transformers has no types
    """A Trainer that cares for no flag."""

    def _maybe_log_save_evaluate(self, *given: Any, **more: Any) -> None:
        self.control.should_save = False


def test_a_save_that_fails_is_the_users_exception_and_answers_the_command(tmp_path: Path) -> None:
    with Recorder() as recorder:
        sent: list[list[Reply]] = []
        command = Command(id="c", run="", op="checkpoint")
        callback = TrainwardenCallback()
        broken = trainer(tmp_path, At(3, lambda: sent.append(recorder.send(command))), callback, kind=FullDisk)
        with pytest.raises(OSError, match="No space left"):
            broken.train()
        callback.end_failed("OSError: No space left on device")  # as at the end of the process
        final = recorder.wait(sent[0])

    assert final is not None
    assert (final.state, "No space left" in final.reason) == ("failed", True)
    assert (recorder.reports[-1].phase, recorder.reports[-1].step) == ("failed", 3)


def test_a_trainer_that_does_not_save_answers_so_and_goes_on(tmp_path: Path) -> None:
    final, reports = asked(tmp_path, Command(id="c", run="", op="checkpoint", hold=True), kind=NeverSaves)

    assert (final.state, final.reason) == ("failed", "the Trainer did not save at step 3")
    assert reports[-1].step == 6


def test_each_training_of_a_process_is_a_run_of_its_own(tmp_path: Path) -> None:
    with Recorder() as recorder:
        one = trainer(tmp_path, TrainwardenCallback())
        one.train()
        one.train()
        trainer(tmp_path, TrainwardenCallback()).train()

    runs = list(dict.fromkeys(report.run for report in recorder.reports))
    assert len(runs) == 3
    for run in runs:
        of_run = [report for report in recorder.reports if report.run == run]
        assert (of_run[0].step, of_run[-1].step, of_run[-1].phase) == (0, 6, "done")


def test_a_training_that_was_given_up_is_failed_when_the_next_begins(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with Recorder() as recorder:
        callback = TrainwardenCallback()
        with pytest.raises(KeyboardInterrupt):
            trainer(tmp_path, At(3, interrupt), callback).train()
        trainer(tmp_path, callback).train()

    runs = list(dict.fromkeys(report.run for report in recorder.reports))
    ends = [[report.phase for report in recorder.reports if report.run == run][-1] for run in runs]
    assert ends == ["failed", "done"]


@pytest.mark.parametrize(
    "callbacks",
    [
        [AutomaticCallback],
        [AutomaticCallback, TrainwardenCallback],
        [TrainwardenCallback, TrainwardenCallback],
        [TrainwardenCallback, AutomaticCallback],
    ],
    ids=["by itself", "both", "the line twice", "by itself, later"],
)
def test_a_training_is_reported_once(tmp_path: Path, callbacks: list[type[TrainerCallback]]) -> None:
    with Recorder() as recorder:
        trainer(
            tmp_path,
            *[each() for each in callbacks],
            eval_on_start=True,
            eval_strategy="epoch",
            eval_dataset=Sequences(4),
        ).train()

    assert len({report.run for report in recorder.reports}) == 1
    assert [step for step, _ in recorder.metrics("loss")] == [1, 2, 3, 4, 5, 6]
    assert recorder.reports[-1].phase == "done"


def test_what_is_logged_and_is_no_number_is_left_out(tmp_path: Path) -> None:
    class Odd(TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
        ) -> None:
            if logs is not None:
                logs |= {"note": "hello", "nothing": None, "flag": True, "bad": float("nan")}

    with Recorder() as recorder:
        trainer(tmp_path, Odd(), TrainwardenCallback(), max_steps=2).train()

    names = {name for report in recorder.reports for name in report.metrics}
    assert not names & {"note", "nothing", "flag"}
    assert [step for step, _ in recorder.metrics("bad")][:2] == [1, 2]


def test_the_callback_can_be_copied_with_its_trainer() -> None:
    import copy
    import pickle

    callback = TrainwardenCallback()

    assert isinstance(copy.deepcopy(callback), TrainwardenCallback)
    assert isinstance(pickle.loads(pickle.dumps(callback)), TrainwardenCallback)


def test_trl_trainers_are_reported_like_any(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from tests.reporters.tiny_gpt import model
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<pad>", "<eos>", "a", "b", "c", "d"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with Recorder() as recorder:
        replies: list[list[Reply]] = []
        command = Command(id="c", run="", op="checkpoint")
        trl.SFTTrainer(
            model=model(),
            args=trl.SFTConfig(
                output_dir=str(tmp_path),
                max_steps=4,
                per_device_train_batch_size=2,
                logging_steps=1,
                max_length=8,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
            ),
            train_dataset=datasets.Dataset.from_dict({"text": ["a b c d"] * 16}),
            processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
            callbacks=[At(2, lambda: replies.append(recorder.send(command))), TrainwardenCallback()],
        ).train()
        final = recorder.wait(replies[0])

    assert final is not None
    assert (final.state, final.checkpoint and final.checkpoint.step) == ("saved", 2)
    assert [step for step, _ in recorder.metrics("loss")] == [1, 2, 3, 4]


PROGRAM = """
import sys
{first}
from pathlib import Path
from trainwarden.reporters import Recorder
from tests.reporters.tiny_gpt import At, trainer
from trainwarden.reporters.transformers import TrainwardenCallback
recorder = Recorder().__enter__()
import atexit
def tell():
    reports = recorder.reports
    print("END", len({{report.run for report in reports}}), reports[-1].phase if reports else None)
atexit.register(tell)
def fail():
    {fail}
trainer(Path(sys.argv[1]), At(3, fail), {callbacks}).train()
"""


def run(folder: Path, **parts: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(**{"first": "", "fail": "pass", "callbacks": "TrainwardenCallback()", **parts})
    return subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("fail", "code"),
    [("raise ValueError('bad batch')", 1), ("sys.exit(7)", 7), ("raise KeyboardInterrupt", None)],
    ids=["exception", "exit", "Ctrl-C"],
)
def test_a_training_that_breaks_off_is_reported_failed(tmp_path: Path, fail: str, code: int | None) -> None:
    ended = run(tmp_path, fail=fail)

    assert "END 1 failed" in ended.stdout, ended.stderr
    assert code is None or ended.returncode == code


@pytest.mark.parametrize("callbacks", ["", "TrainwardenCallback()"], ids=["no line", "the line too"])
def test_with_autoload_every_trainer_is_reported_once(tmp_path: Path, callbacks: str) -> None:
    ended = run(tmp_path, first="import trainwarden.reporters.autoload", callbacks=callbacks)

    assert "END 1 done" in ended.stdout, ended.stderr
