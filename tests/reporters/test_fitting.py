"""A report fits its limits, and what is left out is counted."""

import json
from dataclasses import replace

import pytest

from trainwarden.reporters.fitting import HEADER_BYTES, MAX_METRICS, fit
from trainwarden.reporters.wire import MAX_BYTES, Checkpoint, Report

REPORT = Report(run="r" * 32, seq=1, ts=1.5, pod="p", phase="train", step=7)
ROOM = MAX_BYTES - HEADER_BYTES


def test_a_report_that_fits_stays_as_it_is() -> None:
    report = replace(REPORT, metrics={f"m{number}": 1.0 for number in range(MAX_METRICS)})

    fitted, data = fit(report)

    assert fitted is report
    assert json.loads(data)["trimmed"] == 0


def test_metrics_beyond_the_thousandth_are_left_out_and_counted() -> None:
    names = [f"m{number}" for number in range(1200)] + ["eval/Loss"]

    fitted, _ = fit(replace(REPORT, metrics=dict.fromkeys(names, 1.0), nonfinite={"grad": "NaN"}, trimmed=5))

    assert len(fitted.metrics) + len(fitted.nonfinite) == MAX_METRICS
    assert fitted.nonfinite == {"grad": "NaN"}
    assert "eval/Loss" in fitted.metrics
    assert "m997" in fitted.metrics
    assert "m998" not in fitted.metrics
    assert fitted.trimmed == 5 + 202


@pytest.mark.parametrize("letter", ["x", "é", "損", "\U0001f600", '"', "\x00", "\ud800"], ids=ascii)
def test_long_names_are_left_out_until_the_report_fits(letter: str) -> None:
    metrics = {f"{number}{letter * 250}": 0.1234567890123 for number in range(900)}

    fitted, data = fit(replace(REPORT, metrics={**metrics, "loss": 1.0}))

    assert len(data) <= ROOM
    assert len(data) > ROOM - 1600, "no more is left out than must be"
    assert "loss" in fitted.metrics
    assert fitted.trimmed == 901 - len(fitted.metrics)


@pytest.mark.parametrize("most", [1024, 8192, 10**9])
def test_a_server_that_takes_less_gets_less(most: int) -> None:
    fitted, data = fit(replace(REPORT, metrics={f"m{number}": 1.0 for number in range(900)}), most)

    assert len(data) <= min(most, MAX_BYTES) - HEADER_BYTES
    assert fitted.trimmed == 900 - len(fitted.metrics)
    assert fitted.metrics


def test_a_path_of_kilobytes_gives_way_before_the_metrics() -> None:
    fitted, data = fit(replace(REPORT, metrics={"loss": 1.0}, checkpoint=Checkpoint(1, "/" + "x" * MAX_BYTES)))

    assert len(data) <= ROOM
    assert fitted.checkpoint is None
    assert fitted.metrics == {"loss": 1.0}
