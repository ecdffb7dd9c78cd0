"""What recordings hold that is odd: it is read as it was meant, or told with its place; nothing is lost in silence."""

import json
import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.controller.histories.test_formats import WRITTEN, file, opened, runs, told

from trainwarden.controller.cli import main
from trainwarden.controller.histories.formats import recordings_in
from trainwarden.controller.histories.protobuf import ProtobufError
from trainwarden.controller.histories.recording import HistoryError, Reading
from trainwarden.controller.histories.tensorboard import masked_crc
from trainwarden.controller.histories.values import flat, number, parse_json
from trainwarden.policies.backtest.recording import Row

DEEP = '{"step": 1, "loss": 2.0}\n' + "[" * 100_000 + '\n{"step": 3, "loss": 1.0}\n'
DIGITS = "9" * 5000


def read(path: Path, *, skip: bool = False, reader: str | None = None) -> tuple[Reading, list[Row]]:
    """What was told, and the rows of all runs."""
    reading = Reading(skip=skip)
    return reading, [row for run in recordings_in(path, reading, reader=reader) for row in run.open(reading).rows]


@pytest.mark.parametrize(
    ("name", "text", "line", "what"),
    [
        (
            "a.log",
            (
                " [2024-01-15 10:30:00] iteration 1/ 50 | lm loss: 8.1 |\n"
                " [2024-13-45 10:30:00] iteration 2/ 50 | lm loss: 8.0 |\n"
            ),
            2,
            "2024-13-45 10:30:00",
        ),
        ("a.log", " [2024-13-45 10:30:00] iteration 2/ 50 | lm loss: 8.0 |\n", 1, "2024-13-45 10:30:00"),
        ("a.log", "iteration 1/ 50 | lm loss: 8.1 |\niteration 2.5/ 50 | lm loss: 8.1 |\n", 2, "iteration 2.5/ 50"),
        ("a.log", f"iteration 1/ 50 | lm loss: 8.1 |\niteration 2/ {DIGITS} | lm loss: 8.1 |\n", 2, "iteration 2/ 99"),
        ("a.log", "iteration 1/ 5 | a: 1 |\niteration 2/ 5 | a: 8.1 | a: 8.2 |\n", 2, "a twice: 8.1 and 8.2"),
        ("a.log", "step:1 - a/b:2.0 - c:1\nstep:9007199254740993 - a/b:2.0 - c:1\n", 2, "step:9007199254740993"),
        ("a.log", "step:1 - a/b:2.0 - c:1\nstep:1e30 - a/b:2.0 - c:1\n", 2, "step:1e30"),
        ("a.log", "step:1 - a/b:2.0 - c:1\nstep:2.5 - a/b:2.0 - c:1\n", 2, "step:2.5"),
        ("a.log", "step:1 - a/b:2.0 - c:1\nstep:-1 - a/b:2.0 - c:1\n", 2, "step:-1"),
        ("a.log", f"step:1 - a/b:2.0 - c:1\nstep:{DIGITS} - a/b:2.0 - c:1\n", 2, "step:99"),
        ("a.log", "step:1 - a:2.0 - c:1\nstep:2 - a:2.0 - a:3.0\n", 2, "a twice: 2.0 and 3.0"),
        ("a.log", f"step:1/9 val_loss:2.0\nstep:{DIGITS}/9 val_loss:2.0\n", 2, "step:99"),
        ("a.log", "step:1/9 val_loss:2.0\nstep:2/1e99 val_loss:2.0\n", 2, "step:2/1e99"),
        ("a.log", "{'loss': 2.0, 'epoch': 1.0}\n{'loss': 2.0, [1]: 2, 'epoch': 2.0}\n", 2, "[1]: 2"),
        ("a.jsonl", DEEP, 2, "nested too deeply"),
        ("a.jsonl", DEEP.replace("[", '{"a":'), 2, "nested too deeply"),
        ("a.jsonl", f'{{"step": 1, "loss": 2.0}}\n{{"step": {DIGITS}, "loss": 2.0}}\n', 2, "step is '99"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 2.0, "loss": 3.0}\n', 2, "the key 'loss' twice"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "data": {"a" : 2.0, "a" : 3.0}}\n', 2, "the key 'a' twice"),
        ("a.csv", 'step,note,loss\n1,x,2.0\n2,"x,1.0\n3,y,0.5\n', 3, "a quoted cell that does not end"),
        (
            "a.txt",
            (
                ':::MLLOG {"key": "eval_loss", "value": 1, "time_ms": 1}\n'
                ':::MLLOG {"key": "eval_loss", "value": 1, "time_ms": 1, "metadata": {"step_num": 1e300}}\n'
            ),
            2,
            "step_num",
        ),
        (
            "a.txt",
            (
                ':::MLLOG {"key": "eval_loss", "value": 1, "time_ms": 1}\n'
                ':::MLLOG {"key": "eval_loss", "value": 1, "time_ms": 1, "metadata": {"epoch_num": 1.7e308}}\n'
            ),
            2,
            "epoch_n",
        ),
        (
            "a.jsonl",
            '{"id": "a", "series": {"loss": [[1, 2.0]]}, "elapsed": [["x", 1.0]]}\n',
            1,
            "['x', 1.0] in elapsed",
        ),
    ],
)
def test_what_can_not_be_meant_is_told_with_its_line_and_only_left_out_when_told_to(
    tmp_path: Path, name: str, text: str, line: int, what: str
) -> None:
    path = file(tmp_path, name, text)

    with pytest.raises(HistoryError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert what in str(error.value)

    reading, _ = read(path, skip=True)
    assert reading.skipped == 1
    assert reading.told[0].startswith(f"{path}:{line}: ")


def test_a_date_that_is_none_ends_the_command_with_its_place(tmp_path: Path) -> None:
    log = file(tmp_path, "a.log", " [2024-13-45 10:30:00] iteration 1/ 50 | lm loss: 8.1 |\n")

    result = CliRunner().invoke(main, ["policy", "backtest", "--preset", "balanced", "--processes", "1", str(log)])

    assert result.exit_code == 2
    assert f"trainwarden: {log}:1: '[2024-13-45 10:30:00], which is no date and time'" in result.stderr


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1e308", DIGITS])
def test_a_clock_beyond_all_calendars_gives_rows(tmp_path: Path, time: str) -> None:
    _, rows = read(file(tmp_path, "a.csv", f"step,time,loss\n1,2024-01-01T00:00:00Z,2.0\n2,{time},1.0\n"))

    assert [row.step for row in rows] == [1, 2]


def test_a_database_with_a_step_that_is_a_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (run_uuid, name, start_time)")
        database.execute("CREATE TABLE metrics (run_uuid, timestamp, step, key, value, is_nan)")
        database.execute("INSERT INTO runs VALUES ('r', 'n', 0)")
        database.execute("INSERT INTO metrics VALUES ('r', 1700000000000, 'two', 'loss', 1.0, 0)")
        database.execute("INSERT INTO metrics VALUES ('r', 1700000000000, 1, 'loss', 1.0, 0)")
        database.commit()

    with pytest.raises(HistoryError, match=rf"^{path}:metrics of r: \(1700000000000, 'two', 'loss', 1.0\)"):
        read(path)
    assert [row.step for row in read(path, skip=True)[1]] == [1]


@pytest.mark.parametrize("meta", ["run_name: 2024-13-45\n", f"run_name: {'[' * 5000}\n", "run_name: \x00\n"])
def test_a_run_whose_description_is_damaged_has_no_name(tmp_path: Path, meta: str) -> None:
    (tmp_path / "metrics").mkdir()
    file(tmp_path, "meta.yaml", meta)
    file(tmp_path / "metrics", "loss", "1700000000000 2.0 1\n")

    (run,) = runs(tmp_path)

    assert run.id == str(tmp_path)


@pytest.mark.parametrize(
    "event",
    [
        b"\x09" + struct.pack("<d", 1.7e9) + b"\x2a\x07\x0a\x05\x0a\x01a\x12\x00",  # a value of no bytes
        b"\x09"
        + struct.pack("<d", 1.7e9)
        + b"\x10\x80\x80\x80\x80\x80\x80\x80\x10\x2a\x0a\x0a\x08\x0a\x01a\x15\0\0\0\0",
    ],
    ids=["no value", "a step of 2**53"],
)
def test_an_event_that_can_not_be_is_told_with_its_byte(tmp_path: Path, event: bytes) -> None:
    size = struct.pack("<Q", len(event))
    path = tmp_path / "a.tfevents.1"
    path.write_bytes(size + struct.pack("<I", masked_crc(size)) + event + struct.pack("<I", masked_crc(event)))

    with pytest.raises(HistoryError, match=rf"^{path}:byte 0: a damaged event") as error:
        read(path)
    assert not isinstance(error.value.__cause__, ProtobufError)
    assert read(path, skip=True)[0].skipped == 1


CURVE: dict[str, Any] = {
    "id": "a/b",
    "series": {"loss": [[step, 1 / (1 + step)] for step in range(9000)]},
    "elapsed": [[step, 1.0 * step] for step in range(9000)],
    "total_steps": 9000,
}


@pytest.mark.parametrize(
    "keys", [["id", "series", "elapsed", "total_steps"], ["elapsed", "series", "total_steps", "id"]]
)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.jsonl", "a line"),
        ("a.jsonl", "two lines"),
        ("a.json", "a line"),
        ("a.json", "two lines"),
        ("a.json", "indented"),
        ("a.json", "a list"),
    ],
)
def test_curves_are_recognised_however_json_is_written(tmp_path: Path, keys: list[str], name: str, form: str) -> None:
    curve = {key: CURVE[key] for key in keys}
    text = {
        "a line": json.dumps(curve),
        "two lines": json.dumps(curve) + "\n" + json.dumps(curve | {"id": "c"}) + "\n",
        "indented": json.dumps(curve, indent=2),
        "a list": json.dumps([curve, curve | {"id": "c"}]),
    }[form]
    found = runs(file(tmp_path, name, text))

    assert [run.id for run in found] == (["a/b", "c"] if form in ("two lines", "a list") else ["a/b"])
    first = found[0].open(Reading())
    rows = list(first.rows)
    assert (first.total, len(rows), rows[-1].step, rows[-1].seconds) == (9000, 9000, 8999, 8999.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-nan(ind)", "NaN"),
        ("-NaN(IND)", "NaN"),
        ("nan(0x8000000000000)", "NaN"),
        ("nan(snan)", "NaN"),
        ("1.#QNAN", "NaN"),
        ("-1.#QNAN0", "NaN"),
        ("1.#SNAN", "NaN"),
        ("-1.#IND", "NaN"),
        ("-1.#IND00", "NaN"),
        ("1.#INF", "Infinity"),
        ("-1.#INF", "-Infinity"),
        ("1.#INF00", "Infinity"),
        ("1.#X", None),
        ("nan(", None),
    ],
)
def test_c_and_windows_write_nan_and_infinity_in_their_own_ways(tmp_path: Path, text: str, value: str | None) -> None:
    assert number(text) == value
    if value is None:
        return
    for name, line in [
        ("a.csv", f"step,loss\n0,1.5\n1,{text}\n"),
        ("a.jsonl", f'{{"step": 0, "loss": 1.5}}\n{{"step": 1, "loss": {text}, "note": "a nan"}}\n'),
        ("v.log", f"step:0 - loss:1.5 - c:1\nstep:1 - loss:{text} - c:1\n"),
        ("n.log", f"step:0/9 loss:1.5 train_time:1s\nstep:1/9 loss:{text} train_time:2s\n"),
        ("m.log", f"iteration 0/ 9 | loss: 1.5 |\niteration 1/ 9 | loss: {text} |\n"),
        ("d.log", f"{{'loss': 1.5, 'epoch': 0.5}}\n{{'loss': {text}, 'epoch': 1.0}}\n"),
    ]:
        _, rows = opened(file(tmp_path, name, line))
        assert [dict(row.nonfinite) for row in rows] == [{}, {"loss": value}], name


def test_a_column_twice_is_told_with_the_first_line(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "step,loss,loss\n1,2.0,3.0\n")
    good = file(tmp_path, "b.csv", ",step,loss,\n0,1,2.0,\n")

    for place in (path, tmp_path):
        with pytest.raises(HistoryError, match=rf"^{path}:1: the column 'loss' twice; .* is right; --skip-malformed"):
            read(place)
    reading, rows = read(tmp_path, skip=True)
    assert (reading.told, reading.skipped) == ([f"{path}:1: the column 'loss' twice, left out"], 1)
    assert [row.metrics for row in rows] == [{"loss": 2.0}], f"{good}: columns without a name are none"


def test_a_key_twice_is_found_however_the_object_is_written() -> None:
    for text in ('{"a":1,"a":1}', '{"a" : 1,\n"a"\t: 2}', '{"b": {"a": NaN, "a": 1}}', '[{"a": 1}, {"a": 1, "a": 2}]'):
        with pytest.raises(ValueError, match="the key 'a' twice in one object"):
            parse_json(text.encode())
    assert parse_json(b'{"a": "\\"b\\": \\"b\\":", "c": {"a": 1}}') == {"a": '"b": "b":', "c": {"a": 1}}


def test_trees_are_flat_in_order_and_may_be_deep() -> None:
    deep: dict[str, Any] = {"x": 1}
    for _ in range(5000):
        deep = {"a": deep}

    assert list(flat(deep).values()) == [1]
    assert flat({"m": {"a": 1, "b": {"m": {"c": 2}}}, "d": 3}, open_=("m",)) == {"a": 1, "b/m/c": 2, "d": 3}


def test_cells_and_names_of_columns_may_go_over_several_lines(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "a.csv",
        'step,"note, or\r\nso",loss\r\n1,"first\r\n\r\nsaid ""x"", then",2.0\r\n2,"",1.0\r\n3,"a\nb",high\n4,c,0.5\n',
    )

    with pytest.raises(HistoryError, match=rf"^{path}:7: loss is 'high'"):
        read(path)
    reading, rows = read(path, skip=True)
    assert told(rows, "loss") == [(1, 2.0), (2, 1.0), (4, 0.5)]
    assert reading.skipped == 1


@pytest.mark.parametrize("end", ["", '"'])
def test_a_quote_without_its_other_one_loses_one_line(tmp_path: Path, end: str) -> None:
    rows = "".join(f"{step},x,{9 - step}.5\n" for step in range(3, 9))
    path = file(tmp_path, "a.csv", f'step,note,loss\n1,"x,2.0\n2,y,1.5\n{rows}9,{end}z,1.0{end}\n')

    reading, found = read(path, skip=True)

    assert [row.step for row in found][:7] == list(range(2, 9))
    assert reading.told[0].startswith(f"{path}:2: no line of a table")


def test_a_header_may_be_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    names = [f"metric_number_{at}" for at in range(8000)]
    path = file(tmp_path, "a.csv", f"step,{','.join(names)}\n1{',0.5' * 8000}\n")

    _, rows = opened(path)

    assert len(rows[0].metrics) == 8000


@pytest.mark.parametrize(
    ("name", "metric"),
    [("run-a_b-tag-train_loss.csv", "train_loss"), ("loss.csv", "loss"), ("val.loss.csv.gz", "val.loss")],
)
@pytest.mark.parametrize("header", ["Wall time,Step,Value", "Step,Wall time,Value"])
def test_what_tensorboard_exports_is_named_by_its_file(tmp_path: Path, header: str, name: str, metric: str) -> None:
    first, last = ("1700000000.5,1", "1700000010.5,2") if header[0] == "W" else ("1,1700000000.5", "2,1700000010.5")
    path = file(tmp_path, name, f"{header}\n{first},2.5\n{last},1.5\n")

    found, rows = opened(path)

    assert [(row.step, row.seconds, row.metrics) for row in rows] == [(1, 0.0, {metric: 2.5}), (2, 10.0, {metric: 1.5})]
    assert found.started_at is not None


def test_an_export_of_tensorboard_is_judged_without_a_word_on_lacking_metrics(tmp_path: Path) -> None:
    text = "".join(f"{1.7e9 + 10 * step},{step},{3 / (1 + step)}\n" for step in range(200))
    path = file(tmp_path, "run-a-tag-loss.csv", f"Wall time,Step,Value\n{text}")

    result = CliRunner().invoke(main, ["policy", "backtest", "--preset", "balanced", "--processes", "1", str(path)])

    assert result.exit_code == 0
    assert "never reported" not in result.output


def shuffled(steps: list[int], seed: int = 1) -> list[int]:
    steps = list(steps)
    random.Random(seed).shuffle(steps)
    return steps


@pytest.mark.parametrize("size", [12, 300, 5000])
@pytest.mark.parametrize("order", ["none", "newest first"])
def test_steps_in_no_order_are_sorted_where_there_is_no_clock(tmp_path: Path, order: str, size: int) -> None:
    steps = shuffled(list(range(size))) if order == "none" else list(range(size))[::-1]
    path = file(tmp_path, "a.csv", "step,loss\n" + "".join(f"{step},{step}.5\n" for step in steps))

    reading, rows = read(path)

    assert told(rows, "loss") == [(step, step + 0.5) for step in range(size)]
    assert reading.told == [f"{path}: the steps stand in no order, and there is no clock; the rows were sorted by step"]
    assert reading.skipped == 0


@pytest.mark.parametrize(
    "steps",
    [
        [*range(1, 60), *range(40, 90)],
        [1, 2, 3, 2, 3, 4],
        [n for at in range(1, 50) for n in (100 * at, at)],
        list(range(1, 11)) * 10,
    ],
    ids=["resumed", "resumed early", "two counters", "within epochs"],
)
def test_steps_that_go_back_in_an_order_stay_as_they_are(tmp_path: Path, steps: list[int]) -> None:
    path = file(tmp_path, "a.csv", "step,loss\n" + "".join(f"{step},1.{at:03}1\n" for at, step in enumerate(steps)))

    reading, rows = read(path)

    assert [row.step for row in rows] == steps
    assert reading.told == []


def test_a_clock_that_goes_back_or_is_negative_is_told_once_with_the_step(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "a.csv",
        "step,elapsed,loss\n1,-5,2.0\n2,10,1.9\n3,1200.5,1.8\n4,3,1.7\n5,4,1.6\n6,1200.45,1.5\n7,1300,1.4\n",
    )

    reading, rows = read(path)

    assert reading.told == [
        f"{path}: the clock goes back from 1,200.5 s to 3 s at step 4; 2 rows count as of the latest time before",
        f"{path}: the clock is before the run's beginning, -5 s at step 1; 1 row counts as of the beginning",
    ]
    assert reading.skipped == 0
    assert rows[0].seconds == 0.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.log", "step:1/9 val_loss:2.0 train_time:90s\nstep:2/9 val_loss:2.0 train_time:5s\n"),
        (
            "a.log",
            (
                " [2024-01-15 10:30:00] iteration 1/ 50 | lm loss: 8.1 |\n"
                " [2024-01-15 10:31:00] iteration 2/ 50 | lm loss: 8.1 |\n"
                " [2024-01-15 10:30:30] iteration 3/ 5 | lm loss: 8 |"
            ),
        ),
        (
            "a.txt",
            "".join(
                f':::MLLOG {{"key": "eval_loss", "value": 1, "time_ms": {at}, "metadata": {{"step": 1}}}}\n'
                for at in (1_000_000, 1_060_000, 1_030_000)
            ),
        ),
        ("a.jsonl", "".join(f'{{"step": {at}, "loss": 2.0, "_timestamp": {1.7e9 + at % 5}}}\n' for at in range(7))),
        ("a.jsonl", '{"id":"a","series":{"loss":[[1,2.0],[9,1.0]]},"elapsed":[[1,9.0],[2,3.0],[9,10.0]]}\n'),
    ],
    ids=["nanogpt", "megatron-log", "mllog", "jsonl", "curves"],
)
def test_every_format_tells_of_a_clock_that_goes_back(tmp_path: Path, name: str, text: str) -> None:
    reading, _ = read(file(tmp_path, name, text))

    assert len(reading.told) == 1
    assert "goes back from" in reading.told[0]
    assert " at step " in reading.told[0]
    assert reading.told[0].startswith(str(tmp_path / name))


def test_sessions_of_tensorboard_that_run_beside_each_other_are_told(tmp_path: Path) -> None:
    for name, path in zip(("b.tfevents.2", "a.tfevents.1"), sorted((WRITTEN / "tensorboard").iterdir()), strict=True):
        (tmp_path / name).write_bytes(path.read_bytes())  # the later session first

    reading, _ = read(tmp_path)

    assert len(reading.told) == 1
    assert "before the run's beginning" in reading.told[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,loss,note\n1,2.0,é\n2,1.0,ü\n"),
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1}\n'),
        ("a.json", '[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]'),
        ("a.log", "step:1 - loss:2.0 - c:1\nstep:2 - loss:1.0 - c:1\n"),
    ],
)
def test_utf_16_is_read_as_powershell_writes_it(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))

    _, rows = opened(path)

    assert told(rows, "loss") == [(1, 2.0), (2, 1.0)]


def test_lines_of_utf_16_keep_their_numbers_and_a_cut_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("step,loss\n1,2.0\n2,1.0".encode("utf-16")[:-1])

    with pytest.raises(HistoryError, match=rf"^{path}:3: loss is '1.\ufffd'"):
        read(path)


def test_malformed_places_are_told_in_order_and_once_for_all_runs_of_a_file(tmp_path: Path) -> None:
    lines = [f'{{"run": "{run}", "step": {step}, "loss": 2.0}}' for step in range(8) for run in "ab"]
    lines[10], lines[8], lines[3], lines[12] = "bad", '{"run": "a", "step": "x", "loss": 1}', "[1]", '{"loss": 1.0}'
    lines[1] = '{"run": "b", "step": "y", "loss": 1}'
    path = file(tmp_path, "a.jsonl", "\n".join(lines))
    (tmp_path / "b").mkdir()
    file(tmp_path / "b", "c.csv", "step,loss\n1,2.0\n2\n")

    reading, _ = read(tmp_path, skip=True)

    places = [text.split(": ")[0].removeprefix(f"{tmp_path}/") for text in reading.told]
    assert places == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:9", "a.jsonl:11", "a.jsonl:13", "b/c.csv:3"]
    assert reading.skipped == 6
    assert path.name == "a.jsonl"


def test_bad_files_beside_a_good_one_are_told_and_others_are_not(tmp_path: Path) -> None:
    good = file(tmp_path, "good.csv", "step,loss\n1,2.0\n")
    file(tmp_path, "cut.json", '{"loss": [1.0, ')
    file(tmp_path, "deep.json", "[" * 100_000)
    file(tmp_path, "empty.csv", "")
    file(tmp_path, "lines.jsonl", "[1]\n[2]\n")
    file(tmp_path, "loss.csv", "loss,val_loss\n1,2\n")
    file(tmp_path, "uneven.json", '{"loss": [1.0], "val_loss": []}')
    file(tmp_path, "args.json", '{"lr": 0.1}')
    file(tmp_path, "notes.txt", "step by step\n")
    file(tmp_path, "data.csv", "text,label\nhello,1\n")
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()

    reading = Reading()
    found = list(recordings_in(tmp_path, reading))

    assert [run.id for run in found] == [str(good)]
    assert [Path(text.split(":")[0]).name for text in reading.told] == [
        "cut.json",
        "deep.json",
        "empty.csv",
        "lines.jsonl",
        "loss.csv",
        "other.db",
        "uneven.json",
    ]
    assert all(text.endswith(", passed over") for text in reading.told)
    assert reading.skipped == 0

    good.unlink()
    with pytest.raises(HistoryError, match=rf"no history in this folder, nor in {tmp_path}/cut.json: not JSON"):
        runs(tmp_path)


@pytest.mark.parametrize("name", ["Elapsed", "ELAPSED", "Time Elapsed", "_Runtime", "Seconds"])
def test_a_clock_is_found_whatever_the_case_of_its_name(tmp_path: Path, name: str) -> None:
    _, rows = opened(file(tmp_path, "a.csv", f"STEP,{name},loss\n3,10,2.0\n5,20,1.0\n"))

    assert [(row.step, row.seconds, row.metrics) for row in rows] == [
        (3, 10.0, {"loss": 2.0}),
        (5, 20.0, {"loss": 1.0}),
    ]


def test_a_name_as_it_is_usually_written_goes_before_the_same_in_other_letters(tmp_path: Path) -> None:
    _, rows = opened(file(tmp_path, "a.csv", "Elapsed,elapsed,Step,step,loss\n1,10,7,3,2.0\n"))

    assert [(row.step, row.seconds) for row in rows] == [(3, 10.0)]


def test_runs_of_the_same_name_in_several_files_can_be_told_apart(tmp_path: Path) -> None:
    line = '{"id": "a", "series": {"loss": [[1, 2.0]]}, "elapsed": []}\n'
    places = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        places.append(file(tmp_path / folder, "a.jsonl", line * 2))
        file(tmp_path / folder, "b.csv", "step,loss\n1,2.0\n")
    reading = Reading()

    ids = [run.id for place in (tmp_path / "x", tmp_path / "y") for run in recordings_in(place, reading)]

    assert ids == [
        "a",
        f"a ({places[0]}:2)",
        f"{tmp_path}/x/b.csv",
        f"a ({places[1]}:1)",
        f"a ({places[1]}:2)",
        f"{tmp_path}/y/b.csv",
    ]


def test_curves_without_an_id_are_named_by_their_place(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"series": {"loss": [[1, 2.0]]}}\n' * 2)

    assert [run.id for run in runs(path)] == [f"{path}:1", f"{path}:2"]
