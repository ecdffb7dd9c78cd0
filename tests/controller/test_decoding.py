"""Reports from the wire: good ones are read, bad ones are rejected with a reason, and nothing breaks the reader."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.controller.decoding import HeardCheckpoint, HeardReport, RejectedError, decode_report
from trainwarden.reporters.wire import MAX_BYTES, Checkpoint, Report, encode

MESSAGES = Path(__file__).parents[1] / "reporters" / "messages"
PLAIN = {"v": 1, "run": "r", "seq": 0, "ts": 1.5, "pod": "p", "phase": "train", "step": 7}


def named(pattern: str) -> list[Any]:
    found = sorted(MESSAGES.glob(pattern))
    assert found
    return [pytest.param(path, id=path.stem) for path in found]


def body(**changes: Any) -> bytes:
    return json.dumps(PLAIN | changes).encode()


@pytest.mark.parametrize(("heard", "sent"), [(HeardReport, Report), (HeardCheckpoint, Checkpoint)])
def test_what_is_heard_has_the_fields_of_what_is_sent(heard: Any, sent: Any) -> None:
    assert set(heard.__struct_fields__) == {field.name for field in dataclasses.fields(sent)}


@pytest.mark.parametrize("path", named("report-good-*.json"))
def test_a_good_report_is_read_as_it_was_written(path: Path) -> None:
    written = json.loads(path.read_bytes())

    read = decode_report(path.read_bytes())

    assert (read.run, read.seq, read.step, read.phase) == tuple(
        written[name] for name in ("run", "seq", "step", "phase")
    )
    assert read.metrics == written.get("metrics", {})
    assert read.nonfinite == written.get("nonfinite", {})


@pytest.mark.parametrize("path", named("report-bad-*.json"))
def test_a_bad_report_is_rejected_with_a_reason(path: Path) -> None:
    with pytest.raises(RejectedError, match=r".+"):
        decode_report(path.read_bytes())


@pytest.mark.parametrize("path", named("report-tolerated-*.json"))
def test_bare_nan_from_other_writers_is_taken(path: Path) -> None:
    assert decode_report(path.read_bytes()).nonfinite


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("1e999", "Infinity"),
        ("-1e999", "-Infinity"),
    ],
)
def test_a_metric_that_is_not_finite_goes_where_it_belongs(written: str, read: str) -> None:
    data = body(metrics={"loss": 1.5, "bad": "HERE"}, nonfinite={"old": "NaN"}).replace(b'"HERE"', written.encode())

    report = decode_report(data)

    assert report.metrics == {"loss": 1.5}
    assert report.nonfinite == {"old": "NaN", "bad": read}


def test_whole_numbers_of_any_size_are_metrics() -> None:
    assert decode_report(body(metrics={"tokens": 10**30})).metrics == {"tokens": 1e30}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 60_000,
        b'{"metrics":' * 5_000,
        body(metrics={"": 1.0}),
        body(metrics={"x" * 257: 1.0}),
        body(metrics={f"m{n}": 1.0 for n in range(1001)}),
        body(run="r" * 129),
        body(v=True),
        body(v=2, metrics={"loss": math.nan}),
        body(total=-1),
        body(epoch=math.nan),
        body(ts=math.inf, metrics={"loss": math.nan}),
        body(metrics={"\ud800": math.nan}),
        body(pod="\ud800"),
        body(checkpoint={"step": 1, "path": ""}),
        body(reason="x" * MAX_BYTES),
    ],
    ids=range(17),
)
def test_what_does_not_fit_is_rejected(data: bytes) -> None:
    with pytest.raises(RejectedError):
        decode_report(data)


def test_the_reason_says_where_and_what_would_be_right() -> None:
    with pytest.raises(RejectedError, match=r"Expected `int` >= 0 - at `\$.step`"):
        decode_report(body(step=-1))


def test_what_a_reporter_encodes_is_read() -> None:
    sent = Report("r", 3, 1.0, "p", "eval", 9, total=20, epoch=0.5, metrics={"a/b": 1.0}, nonfinite={"c": "NaN"})

    read = decode_report(encode(sent))

    assert (read.total, read.epoch, read.metrics, read.nonfinite) == (20, 0.5, {"a/b": 1.0}, {"c": "NaN"})


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    _read_or_reject(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("NaN"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(HeardReport.__struct_fields__), _JSON))
def test_any_fields_are_read_or_rejected(changes: dict[str, Any]) -> None:
    _read_or_reject(body(**changes))


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.floats()))
def test_any_numbers_are_metrics_and_can_be_said_on(metrics: dict[str, float]) -> None:
    report = decode_report(body(metrics=metrics))

    assert set(report.metrics) | set(report.nonfinite) == set(metrics)
    assert all(map(math.isfinite, report.metrics.values()))


def _read_or_reject(data: bytes) -> None:
    try:
        report = decode_report(data)
    except RejectedError:
        return
    assert 0 <= report.step <= 1 << 53
    for name in (*report.metrics, *report.nonfinite, report.run, report.pod):
        name.encode()
