"""Whatever a file holds: rows, or an error that names the place; nothing else, and never a hang."""

import random
import shutil
from pathlib import Path

import pytest

from trainwarden.controller.histories.formats import FORMATS, recordings_in
from trainwarden.controller.histories.recording import HistoryError, Reading
from trainwarden.policies.backtest.recording import Row, Setting
from trainwarden.policies.backtest.replaying import replay

WRITTEN = Path(__file__).parent / "written"
TEXTS = {
    "curves.jsonl": (
        '{"id":"a","source":"x","series":{"loss":[[0,3.0],[2,"nan"]]},"elapsed":[[0,1.0]],"total_steps":10}\n' * 2
    ),
    "plain.jsonl": '{"step": 1, "loss": 2.0, "time": 1.0}\n{"step": 2, "loss": NaN, "run": "a"}\n',
    "wandb.csv": '"Step","a - loss","a - loss__MIN","b - loss"\n1,2.0,2.0,\n2,,,3.0\n',
    "verl.log": "step:1 - a/b:2.0 - timing_s/step:1.0\nstep:2 - a/b:np.float64(1.0) - timing_s/step:1.0\n",
    "nano.txt": "step:0/6000 val_loss:11.01 train_time:305ms step_avg:nanms\n" * 3,
    "trl.log": " 10%|█ | 2/20 [00:01<00:09, 1it/s]{'loss': 2.0, 'grad_norm': nan, 'epoch': 0.1}\n" * 3,
    "megatron.log": (
        " [2024-01-15 10:30:00] iteration 10/ 50 | elapsed time per iteration (ms): 9.5 | lm loss: 8.1E+00 |\n" * 3
    ),
    "golden.json": '{"lm loss": {"start_step": 1, "step_interval": 1, "values": {"1": 10.8, "2": "nan"}}}',
    "mllog.txt": (
        ':::MLLOG {"time_ms": 1700000000000, "key": "eval_loss", "value": 1.5, "metadata": {"step_num": 3}}\n' * 3
    ),
    "keras.json": '{"loss": [2.0, 1.0], "val_loss": [2.5, 2.0]}',
    "decisions.jsonl": (
        '{"time": "2026-12-04T23:10:00Z", "run": {"namespace": "n", "job": "j", "uid": "u"}, "verdict": "Firing", '
        '"evidence": {"step": 4, "values": {"metrics.loss": 2.5, "progress.percent": 42.0}}}\n' * 2
    ),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("originals")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in (
        next((WRITTEN / "tensorboard").glob("*.0")),
        WRITTEN / "mlflow" / "mlflow.db",
        WRITTEN / "lightning" / "lightning_logs" / "version_0" / "metrics.csv",
        WRITTEN / "transformers" / "checkpoint-20" / "trainer_state.json",
    ):
        shutil.copy(path, folder / path.name)
    return sorted(folder.iterdir())


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Some bytes cut off, overwritten, repeated or taken out."""
    at = chance.randrange(len(data))
    end = min(at + chance.choice([1, 1, 4, 40]), len(data))
    return chance.choice(
        [
            data[:at],
            data[:at] + bytes(chance.randrange(256) for _ in range(end - at)) + data[end:],
            data[:at] + data[at:end] * 3 + data[end:],
            data[:at] + data[end:],
            data[:at]
            + chance.choice([b"nan", b"-1", b"null", b"[", b"{", b'"', b"1e999", b"\n", b"9" * 30])
            + data[end:],
        ]
    )


def read(path: Path, reading: Reading, reader: str | None = None) -> list[Row] | HistoryError:
    """The rows, or why there are none."""
    try:
        return [row for run in recordings_in(path, reading, reader=reader) for row in run.open(reading).rows]
    except HistoryError as error:
        return error


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_file_gives_rows_or_an_error_with_its_place(
    originals: list[Path], tmp_path: Path, seed: int, skip: bool
) -> None:
    chance = random.Random(seed)
    for original in originals:
        path = tmp_path / original.name
        path.write_bytes(damaged(original.read_bytes(), chance))

        found = read(path, Reading(skip=skip))

        if isinstance(found, HistoryError):
            assert str(path) in found.place
        else:
            assert all(row.step >= 0 and (row.metrics or row.nonfinite) for row in found)
            replay("r", found, [], Setting())


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("reader", sorted(FORMATS))
def test_a_file_of_another_format_gives_rows_or_an_error_with_its_place(
    originals: list[Path], reader: str, skip: bool
) -> None:
    for path in originals:
        found = read(path, Reading(skip=skip), reader)

        assert not isinstance(found, HistoryError) or str(path) in found.place
