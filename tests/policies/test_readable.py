"""Numbers and lengths of time read alike everywhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainwarden.notifiers import wording
from trainwarden.policies.expressions.functions import human_duration, human_number
from trainwarden.policies.lengths import ago
from trainwarden.policies.readable import duration, number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.44, "0.4s"),
        (1, "1s"),
        (59.6, "1m"),
        (3600, "1h"),
        (90061, "1d 1h"),
        (-5, "-5s"),
        (float("inf"), "unknown"),
    ],
)
def test_durations_are_human(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.51349, "2.513"),
        (1.2e-7, "1.2e-07"),
        (1234567.0, "1,234,567"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (3e20, "3e+20"),
    ],
)
def test_numbers_have_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_messages_reasons_and_human_say_a_length_and_a_number_alike() -> None:
    assert wording.duration(5405) == human_duration(timedelta(seconds=5405)) == ago(5405) == duration(5405) == "1h 30m"
    assert wording.number(12_800.0) == human_number(12_800.0) == number(12_800.0) == "12,800"
