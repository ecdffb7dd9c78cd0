"""Each format is recognised and gives what was logged, in files of the libraries themselves where possible."""

import gzip
import math
from pathlib import Path

import pytest
from tests.controller.histories.write import logs, loss

from trainwarden.controller.histories.formats import FORMATS, recordings_in
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading, Recording
from trainwarden.policies.backtest.recording import Row

WRITTEN = Path(__file__).parent / "written"


def runs(path: Path) -> list[Recording]:
    return list(recordings_in(path, Reading()))


def opened(path: Path) -> tuple[Opened, list[Row]]:
    """The only run of a file."""
    (run,) = runs(path)
    found = run.open(Reading())
    return found, list(found.rows)


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def told(rows: list[Row], name: str) -> list[tuple[int, float | str]]:
    return [
        (row.step, row.metrics[name] if name in row.metrics else row.nonfinite[name])
        for row in rows
        if name in row.metrics or name in row.nonfinite
    ]


TRAIN = [(step, loss(step) if math.isfinite(loss(step)) else "NaN") for step in range(1, 41)]
EVAL = [(step, metrics["eval/loss"]) for step, metrics in logs() if "eval/loss" in metrics]


@pytest.mark.parametrize("place", ["mlflow/mlruns", "mlflow/mlflow.db"])
def test_both_stores_of_mlflow_give_the_same_with_nan_and_infinity_as_they_were(place: str) -> None:
    found, rows = opened(WRITTEN / place)

    assert told(rows, "train/loss") == TRAIN
    assert told(rows, "eval/loss") == EVAL
    assert told(rows, "overflow") == [(40, "Infinity")]
    assert [row.seconds for row in rows] == [float(step) for step in range(40)]
    assert found.started_at is not None
    assert found.started_at.timestamp() == 1_700_000_001


def test_a_folder_with_several_stores_gives_the_runs_of_all() -> None:
    assert [type(run).__name__ for run in runs(WRITTEN / "mlflow")] == ["FileStoreRun", "SqliteRun"]


def test_lightning_writes_csv_with_empty_cells() -> None:
    _, rows = opened(WRITTEN / "lightning")

    assert told(rows, "train_loss") == TRAIN
    assert told(rows, "eval_loss") == EVAL
    assert (rows[-1].step, rows[-1].epoch, rows[-1].seconds) == (40, 4.0, None)


def test_tensorboard_gives_both_sessions_of_a_run_and_old_and_new_scalars() -> None:
    found, rows = opened(WRITTEN / "tensorboard")

    assert [row.step for row in rows] == [*range(1, 26), *range(21, 41)]
    values = dict(told(rows, "train/loss"))
    assert values[37] == "NaN"
    assert values[10] == pytest.approx(2.0)
    assert [row.seconds for row in rows][24:26] == [24.0, 120.0]
    assert found.started_at is not None
    assert found.started_at.timestamp() == 1.7e9 + 1


def test_transformers_states_of_one_run_count_once() -> None:
    found, rows = opened(WRITTEN / "transformers" / "checkpoint-40")
    names = [run.id for run in runs(WRITTEN / "transformers")]

    assert [name.rsplit("/", 1)[-1] for name in names] == ["trainer_state.json", "stdout.log"]
    assert "checkpoint-40" in names[0]
    assert found.total == 40
    assert [row.step for row in rows] == list(range(2, 41, 2))
    assert set(rows[4].metrics) == {"loss", "grad_norm", "learning_rate", "eval_loss"}


def test_what_transformers_prints_gets_its_steps_from_the_progress_bar() -> None:
    _, rows = opened(WRITTEN / "transformers" / "stdout.log")
    _, state = opened(WRITTEN / "transformers" / "checkpoint-40")

    assert [row.step for row in rows] == [row.step for row in state]
    assert [row.metrics["loss"] for row in rows] == pytest.approx([row.metrics["loss"] for row in state], rel=1e-3)
    assert {row.total for row in rows} == {40}


def test_the_run_time_at_the_end_of_a_state_is_its_clock(tmp_path: Path) -> None:
    state = file(
        tmp_path,
        "trainer_state.json",
        """{"max_steps": 20, "log_history": [
            {"step": 10, "loss": 2.0, "epoch": 1.0, "remaining_time": "50h:50m:26s"},
            {"step": 20, "loss": NaN, "grad_norm": Infinity},
            {"step": 20, "train_runtime": 600.0, "train_loss": 1.5}]}""",
    )

    _, rows = opened(state)

    assert [(row.step, row.seconds) for row in rows] == [(10, 300.0), (20, 600.0)]
    assert rows[0].metrics == {"loss": 2.0}
    assert rows[1].nonfinite == {"loss": "NaN", "grad_norm": "Infinity"}


def test_trl_prints_dicts_without_a_bar_and_its_rewards_are_metrics(tmp_path: Path) -> None:
    log = file(
        tmp_path,
        "out.log",
        "loading\n{'loss': 0.0, 'grad_norm': nan, 'reward': 1.28, 'kl': 0.0004, 'epoch': 0.01}\n"
        "{'loss': 0.0, 'reward': -inf, 'rewards/format/mean': 0.5, 'epoch': 0.02}\n"
        "{'train_runtime': 12.0, 'train_loss': 0.0, 'epoch': 0.02}\n",
    )

    _, rows = opened(log)

    assert [row.step for row in rows] == [1, 2]
    assert rows[0].nonfinite == {"grad_norm": "NaN"}
    assert rows[1].metrics == {"loss": 0.0, "rewards/format/mean": 0.5}
    assert rows[1].nonfinite == {"reward": "-Infinity"}


def test_verl_prints_one_line_a_step_with_odd_names_and_wrapped_numbers(tmp_path: Path) -> None:
    log = file(
        tmp_path,
        "verl.log",
        "(TaskRunner pid=7) step:1 - actor/pg_loss:np.float64(0.25) - actor/lr(1e-4):0.100 - timing_s/step:30.5\n"
        "something else: here\n"
        "(TaskRunner pid=7) step:2 - actor/pg_loss:-0.000 - critic/rewards/mean:nan - timing_s/step:29.5\n",
    )

    _, rows = opened(log)

    assert [(row.step, row.seconds) for row in rows] == [(1, 30.5), (2, 60.0)]
    assert rows[0].metrics == {"actor/pg_loss": 0.25, "actor/lr(1e-4)": 0.1, "timing_s/step": 30.5}
    assert rows[1].nonfinite == {"critic/rewards/mean": "NaN"}


def test_verl_writes_its_data_under_a_key(tmp_path: Path) -> None:
    path = file(tmp_path, "verl.jsonl", '{"step": 1, "data": {"actor/pg_loss": 0.5}}\n{"step": 2, "data": {"x": 1}}\n')

    _, rows = opened(path)

    assert [(row.step, row.metrics) for row in rows] == [(1, {"actor/pg_loss": 0.5}), (2, {"x": 1.0})]


def test_modded_nanogpt_logs_begin_with_their_source_and_have_a_nan_that_is_no_metric(tmp_path: Path) -> None:
    log = file(
        tmp_path,
        "5bdc.txt",
        "import os\nprint(f'step:{step}/{args.num_iterations} val_loss:{loss}')\n"
        "step:0/6000 val_loss:11.0149 train_time:305ms step_avg:nanms\n"
        "step:1/6000 train_loss:11.0091 train_time:24250ms step_avg:nanms\n"
        "step:125/6000 val_loss:nan train_time:41.5s step_avg:254ms\n",
    )

    _, rows = opened(log)

    assert [(row.step, row.seconds, row.total) for row in rows] == [
        (0, 0.305, 6000),
        (1, 24.25, 6000),
        (125, 41.5, 6000),
    ]
    assert rows[1].metrics == {"train_loss": 11.0091}
    assert (rows[2].metrics, rows[2].nonfinite) == ({}, {"val_loss": "NaN"})


def test_megatron_prints_iterations(tmp_path: Path) -> None:
    log = file(
        tmp_path,
        "pretrain.log",
        " [2024-01-15 10:30:00.12] iteration       10/      50 | consumed samples:   160 | elapsed time per iteration"
        " (ms): 1234.5 | learning rate: 3.000E-04 | lm loss: 8.12345E+00 | grad norm: 1.234 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " [2024-01-15 10:30:12.50] iteration       20/      50 | lm loss: nan | grad norm: 1.0 |\n",
    )

    _, rows = opened(log)

    assert [(row.step, row.total, row.seconds) for row in rows] == [(10, 50, 0.0), (20, 50, 12.0)]
    assert rows[0].metrics == {"learning rate": 3e-4, "lm loss": 8.12345, "grad norm": 1.234}
    assert rows[1].nonfinite == {"lm loss": "NaN"}


def test_both_generations_of_megatrons_json_are_read_and_nan_where_nothing_was_measured_is_nothing(
    tmp_path: Path,
) -> None:
    new = file(
        tmp_path,
        "new.json",
        """{"lm loss": {"start_step": 1, "end_step": 6, "step_interval": 1,
                       "values": {"1": 10.8, "2": 10.7, "3": 10.6, "4": "nan", "5": "nan", "6": "nan"}},
            "iteration-time": {"start_step": 1, "end_step": 6, "step_interval": 1,
                       "values": {"1": 30.0, "2": "nan", "3": 2.0, "4": "nan", "5": 2.0, "6": "nan"}}}""",
    )
    old = file(
        tmp_path,
        "old.json",
        '{"lm loss": {"start_step": 0, "end_step": 15, "step_interval": 5, "values": [10.8, 10.7, 10.6]}}',
    )

    _, rows = opened(new)
    assert told(rows, "lm loss") == [(1, 10.8), (2, 10.7), (3, 10.6), (4, "NaN"), (5, "NaN"), (6, "NaN")]
    assert [row.seconds for row in rows] == [30.0, 60.0, 62.0, 64.0, 66.0, 68.0]
    _, rows = opened(old)
    assert told(rows, "lm loss") == [(0, 10.8), (5, 10.7), (10, 10.6)]


def test_sparse_megatron_values_are_not_nan(tmp_path: Path) -> None:
    values = ", ".join(
        f'"{step}": {10 - step / 100 if step % 10 == 0 else chr(34) + "nan" + chr(34)}' for step in range(1, 101)
    )
    path = file(
        tmp_path, "sparse.json", f'{{"lm loss": {{"start_step": 1, "step_interval": 1, "values": {{{values}}}}}}}'
    )

    _, rows = opened(path)

    assert [step for step, _ in told(rows, "lm loss")] == list(range(10, 101, 10))


def test_mllog_counts_in_what_its_values_carry_and_from_run_start(tmp_path: Path) -> None:
    def event(key: str, ms: int, value: str, **metadata: int) -> str:
        meta = ", ".join(f'"{name}": {item}' for name, item in metadata.items())
        return (
            f'0: :::MLLOG {{"namespace": "", "time_ms": {ms}, "event_type": "POINT_IN_TIME", "key": "{key}", '
            f'"value": {value}, "metadata": {{"file": "train.py", "lineno": 1{", " if meta else ""}{meta}}}}}\n'
        )

    path = file(
        tmp_path,
        "result_0.txt",
        event("submission_benchmark", 1_700_000_000_000, '"llm"')
        + event("max_steps", 1_700_000_000_500, "300")
        + event("run_start", 1_700_000_001_000, "null")
        + event("tracked_stats", 1_700_000_031_000, '{"train_loss": 3.5, "throughput": 9.0}', step=100)
        + event("eval_accuracy", 1_700_000_061_000, "0.25", step=200),
    )

    found, rows = opened(path)

    assert [(row.step, row.seconds, row.metrics, row.total) for row in rows] == [
        (100, 30.0, {"train_loss": 3.5, "throughput": 9.0}, 300),
        (200, 60.0, {"eval_accuracy": 0.25}, 300),
    ]
    assert found.started_at is not None


def test_a_chart_exported_from_wandb_holds_runs_side_by_side(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "wandb_export.csv",
        '"Step","calm-sun-1 - train/loss","calm-sun-1 - train/loss__MIN","calm-sun-1 - train/loss__MAX",'
        '"wild-sea-2 - train/loss","wild-sea-2 - _step"\n'
        '"0","2.5","2.5","2.5","",""\n"10","1.5","1.4","1.6","NaN","10"\n',
    )

    first, second = runs(path)

    assert (first.id, second.id) == (f"{path}#calm-sun-1", f"{path}#wild-sea-2")
    assert told(list(first.open(Reading()).rows), "train/loss") == [(0, 2.5), (10, 1.5)]
    assert told(list(second.open(Reading()).rows), "train/loss") == [(10, "NaN")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("history.csv", "_step,_runtime,_timestamp,loss,note\n0,1.5,1700000000.5,2.5,a\n5,61.5,1700000060.5,1.5,b\n"),
        (
            "history.jsonl",
            (
                '{"_step": 0, "_runtime": 1.5, "_timestamp": 1700000000.5, "loss": 2.5, "note": "a"}\n'
                '{"_step": 5, "_runtime": 61.5, "_timestamp": 1700000060.5, "loss": 1.5, "_wandb": {"x": 1}}\n'
            ),
        ),
    ],
)
def test_a_history_of_wandb_has_its_own_clock(tmp_path: Path, name: str, text: str) -> None:
    _, rows = opened(file(tmp_path, name, text))

    assert [(row.step, row.seconds) for row in rows] == [(0, 1.5), (5, 61.5)]
    assert told(rows, "loss") == [(0, 2.5), (5, 1.5)]


def test_reports_as_on_the_wire_make_runs(tmp_path: Path) -> None:
    line = (
        '{{"v": 1, "run": "{}", "seq": {}, "ts": {}, "pod": "p", "phase": "train", "step": {}, "total": 9, '
        '"metrics": {{"loss": 1.5}}, "nonfinite": {{"g": "NaN"}}}}\n'
    )
    path = file(tmp_path, "r.jsonl", "".join(line.format(run, n, 1.7e9 + n, n) for n in (1, 2) for run in ("a", "b")))

    first, second = runs(path)

    rows = list(first.open(Reading()).rows)
    assert (first.id, second.id) == (f"{path}#a", f"{path}#b")
    assert [(row.step, row.seconds, row.total) for row in rows] == [(1, 0.0, 9), (2, 1.0, 9)]
    assert (rows[0].metrics, rows[0].nonfinite) == ({"loss": 1.5}, {"g": "NaN"})


def test_a_table_may_be_packed_have_other_separators_and_no_step(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "plain.csv.gz"
    path.write_bytes(gzip.compress("\ufeffloss;wer\r\n1.5;0.5\r\n;0.4\r\n".encode()))

    _, rows = opened(path)

    assert [(row.step, row.metrics) for row in rows] == [(1, {"loss": 1.5, "wer": 0.5}), (2, {"wer": 0.4})]


def test_keras_histories_are_lists_side_by_side(tmp_path: Path) -> None:
    _, rows = opened(file(tmp_path, "history.json", '{"loss": [2.0, 1.0], "val_loss": [2.5, NaN]}'))

    assert [(row.step, row.metrics) for row in rows] == [(1, {"loss": 2.0, "val_loss": 2.5}), (2, {"loss": 1.0})]
    assert rows[1].nonfinite == {"val_loss": "NaN"}


def test_curves_have_a_clock_between_and_beyond_its_points(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "curves.jsonl",
        '{"id":"a/b","source":"x","series":{"loss":[[0,3.0],[2,"nan"],[4,1.0],[9,0.5]],"val":[[4,2.0]]},'
        '"elapsed":[[1,"nan"],[2,10.0],[4,20.0],[4,21.0]],"total_steps":10}\n',
    )

    (run,) = runs(path)
    found = run.open(Reading())
    rows = list(found.rows)

    assert (run.id, found.total) == ("a/b", 10)
    assert [(row.step, row.seconds) for row in rows] == [(0, 0.0), (2, 10.0), (4, 21.0), (9, 48.5)]
    assert rows[1].nonfinite == {"loss": "NaN"}
    assert rows[2].metrics == {"loss": 1.0, "val": 2.0}


def test_a_decision_log_gives_what_was_known_when_something_was_decided(tmp_path: Path) -> None:
    decision = (
        '{{"id": "{0}", "time": "2026-12-04T23:1{0}:00Z", "run": {{"namespace": "team-a", "job": "{1}", "uid": "u", '
        '"attempt": "a", "run": "r"}}, "policy": {{}}, "rule": "plateau", "verdict": "Firing", "severity": "info", '
        '"reason": "x", "message": "", "evidence": {{"step": {2}, "knownSince": "2026-12-04T23:00:00Z", '
        '"values": {{"metrics.loss": {3}, '
        '"metrics[\\"eval/loss\\"]": "NaN", "nonFinite(\\"g\\")": true, "progress.percent": 42.0, "job.gpus": 8}}}}}}\n'
    )
    path = file(
        tmp_path,
        "decisions.jsonl",
        decision.format(0, "llama", 420, 2.5)
        + decision.format(1, "bert", 7, 1.0)
        + decision.format(2, "llama", 840, 2.0),
    )

    first, second = runs(path)
    found = first.open(Reading())
    rows = list(found.rows)

    assert (first.id, second.id) == ("team-a/llama", "team-a/bert")
    assert found.started_at is not None
    assert found.started_at.isoformat() == "2026-12-04T23:00:00+00:00"
    assert [(row.step, row.seconds, row.total, row.metrics) for row in rows] == [
        (420, 600.0, 1000, {"loss": 2.5}),
        (840, 720.0, 2000, {"loss": 2.0}),
    ]
    assert rows[0].nonfinite == {"eval/loss": "NaN", "g": "NaN"}


@pytest.mark.parametrize(
    ("name", "text", "where", "what"),
    [
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "lo\n', ":2", "not JSON"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n[1]\n', ":2", "a JSON list"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": "two", "loss": 1.0}\n', ":2", "step is 'two'"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": "1,5"}\n', ":2", "loss is '1,5'"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": [1.5]}\n', ":2", "loss is [1.5]"),
        ("a.jsonl", "".join(f'{{"run_id": "{run}", "step": 1, "loss": 2.0}}\n' for run in ["a", "b", ""]), ":3",
         "of no run, among those of 2"),
        ("a.csv", "run,step,loss\n,1,2.0\na,1,2.0\nb,1,2.0\n", ":2", "of no run, among those of 2"),
        ("a.csv", "step,loss\n1,2.0\n2\n", ":3", "1 cells"),
        ("a.csv", "step,loss\n1,2.0\n2,high\n", ":3", "loss is 'high'"),
        ("a.csv", "step,loss\n1,2.0\n1.5,2.0\n", ":3", "step is '1.5'"),
        ("a.csv", "step,loss\n1,2.0\n99999999999999999999,2.0\n", ":3", "a whole number from 0 to 2**53"),
        ("a.log", "step:1/9 val_loss:2.0\nstep:2/9 val_loss:two\n", ":2", "val_loss:two"),
        ("a.log", "step:1 - a/b:2.0 - c:1\nstep:2 - a/b:two - c:1\n", ":2", "a/b:two"),
        ("a.log", "{'loss': 2.0, 'epoch': 1.0}\n{'loss': 2.0 'epoch': 1.0}\n", ":2", "'loss'"),
        ("a.txt", ':::MLLOG {"key": "eval_loss", "value": 1, "time_ms": 1}\n:::MLLOG {"key"\n', ":2", "MLLOG"),
        ("a.jsonl", '{"id":"a","series":{"loss":[[1,2.0],[2]]},"elapsed":[]}\n', ":1", "[2] in series 'loss'"),
        ("a.jsonl", '{"id":"a","series":{"loss":[[1,2.0]]},"elapsed":[1.5]}\n', ":1", "1.5 in elapsed"),
        ("a.jsonl", '{"id":"a","series":{"loss":[[1,2.0]]},"elapsed":7}\n', ":1", "7 in elapsed"),
        ("trainer_state.json", '{"log_history": [{"loss": 1.0}]}', "log_history[0]", "{'loss': 1.0}"),
        ("m.json", '{"lm loss": {"values": {"1": 2.0, "2": "?"}}}', "lm loss.values[2]", "'?'"),
    ],
)  # fmt: skip
def test_a_malformed_place_is_told_and_only_left_out_when_told_to(
    tmp_path: Path, name: str, text: str, where: str, what: str
) -> None:
    path = file(tmp_path, name, text)

    with pytest.raises(HistoryError) as error:
        [list(run.open(Reading()).rows) for run in runs(path)]
    assert str(error.value).startswith(f"{path}:{where.removeprefix(':')}: ")
    assert what in str(error.value)
    assert "--skip-malformed" in str(error.value)

    reading = Reading(skip=True)
    for run in recordings_in(path, reading):
        list(run.open(reading).rows)
    assert reading.skipped == 1
    assert reading.told[0].startswith(f"{path}:{where.removeprefix(':')}: ")


def test_an_event_file_that_is_cut_off_or_damaged_is_told_with_its_byte(tmp_path: Path) -> None:
    whole = next((WRITTEN / "tensorboard").glob("*.0")).read_bytes()
    cut, damaged = tmp_path / "a.tfevents.1", tmp_path / "b.tfevents.1"
    cut.write_bytes(whole[:-5])
    damaged.write_bytes(whole[:400] + b"\xff" + whole[401:])

    for path in (cut, damaged):
        with pytest.raises(HistoryError, match=rf"^{path}:byte \d+: "):
            opened(path)
        reading = Reading(skip=True)
        (run,) = recordings_in(path, reading)
        assert len(list(run.open(reading).rows)) >= 1
        assert reading.skipped == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty.json", ""),
        ("prose.txt", "Dear reader,\nthis is a letter.\n"),
        ("numbers.csv", "1,2\n3,4\n"),
        ("a.json", "{}"),
    ],
)
def test_what_is_no_history_is_refused_with_its_place(tmp_path: Path, name: str, text: str) -> None:
    path = file(tmp_path, name, text)

    with pytest.raises(HistoryError, match=rf"^{path}"):
        opened(path)


def test_a_missing_file_and_a_folder_without_histories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such file"):
        runs(tmp_path / "none")
    with pytest.raises(HistoryError, match="no history in this folder"):
        runs(tmp_path)


def test_other_files_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    file(tmp_path, "data.csv", "text,label\nhello,1\n")
    file(tmp_path, "prompts.jsonl", '{"prompt": "hello", "score": 1}\n')
    file(tmp_path, "args.json", '{"lr": 0.1}')
    file(tmp_path, "notes.txt", "step by step\n")
    file(tmp_path, "history.json", '{"loss": [2.0, 1.0]}')
    (tmp_path / "run").mkdir()
    file(tmp_path / "run", "metrics.csv", "epoch,loss\n0,1.0\n")

    assert [run.id for run in runs(tmp_path)] == [f"{tmp_path}/history.json", f"{tmp_path}/run/metrics.csv"]


@pytest.mark.parametrize("lines", [100_000, 20])
def test_a_broken_archive_is_told_with_its_line_and_gives_what_stands_before(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    text = "".join(f'{{"step": {step}, "loss": {step % 7}.5}}\n' for step in range(lines))
    path.write_bytes(gzip.compress(text.encode())[:-20])

    with pytest.raises(HistoryError, match=rf"^{path}:\d+: it can't be unpacked"):
        opened(path)
    for named in (path, tmp_path):
        reading = Reading(skip=True)
        (run,) = recordings_in(named, reading)
        assert len(list(run.open(reading).rows)) > lines // 2
        assert reading.skipped == 1


def test_a_file_of_which_nothing_can_be_unpacked_is_told_and_left_out_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"step": 1, "loss": 2.0}\n')[:8])
    good = file(tmp_path, "b.jsonl", '{"step": 1, "loss": 2.0}\n')

    for named in (path, tmp_path):
        with pytest.raises(HistoryError, match=rf"^{path}: it can't be unpacked .*--skip-malformed"):
            runs(named)
        reading = Reading(skip=True)
        assert [run.id for run in recordings_in(named, reading)] == ([] if named == path else [str(good)])
        assert reading.told[0].startswith(f"{path}: it can't be unpacked")


def test_the_trainings_own_step_goes_before_that_of_the_log(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "a.jsonl",
        "".join(f'{{"_step": {n}, "train/global_step": {50 * n}, "train/loss": {9 - n}}}\n{{"_step": {n}, "gpu": 1}}\n'
                for n in range(1, 4)),
    )  # fmt: skip

    _, rows = opened(path)

    assert told(rows, "train/loss") == [(50, 8.0), (100, 7.0), (150, 6.0)]
    assert told(rows, "gpu") == [(50, 1.0), (100, 1.0), (150, 1.0)]


def test_cells_that_say_that_there_is_nothing_are_empty(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "step,loss,val_loss\n1,2.0,N/A\n2,1.0,-\n3,0.5,0.7\n")

    _, rows = opened(path)

    assert told(rows, "val_loss") == [(3, 0.7)]


def test_texts_beside_the_numbers_are_passed_over(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "a.jsonl",
        '{"step": 1, "loss": 2.0, "note": "warm", "done": false, "at": null, "bins": [1, 2]}\n'
        '{"step": 2, "loss": null, "note": 7, "done": true, "at": "x", "bins": [1]}\n'
        '{"step": 3, "loss": "NaN", "note": "", "done": true, "at": "y"}\n',
    )

    _, rows = opened(path)

    assert [(row.step, dict(row.metrics), dict(row.nonfinite)) for row in rows] == [
        (1, {"loss": 2.0}, {}),
        (3, {}, {"loss": "NaN"}),
    ]


def test_every_reader_has_a_name() -> None:
    assert sorted(FORMATS) == [
        "csv", "curves", "decisions", "dicts", "json", "jsonl", "megatron", "megatron-log", "mlflow", "mllog",
        "nanogpt", "tensorboard", "trainer_state", "verl",
    ]  # fmt: skip
