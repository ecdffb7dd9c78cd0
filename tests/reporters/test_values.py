"""Which values count as numbers, and that no accelerator is ever waited for."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from trainwarden.reporters.complaints import Complaints
from trainwarden.reporters.values import MAX_NAME, RefusedError, finite, finite_number, metric, metrics, whole


class Tensor:
    """Looks like a tensor on a device; reading it there would wait, so a test fails by it."""

    def __init__(self, value: float, device: object) -> None:
        self._value, self.device, self.shape = value, device, ()

    def item(self) -> float:
        if str(self.device) != "cpu":
            pytest.fail("read a tensor on an accelerator")
        return self._value

    __float__ = __int__ = __index__ = item


class Device:
    def __init__(self, kind: str) -> None:
        self.type = kind

    def __str__(self) -> str:
        return self.type


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (2.5, 2.5),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.float64(0.25), 0.25),
        (np.float16(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.bool_(True), 1.0),
        (np.array(3.5), 3.5),
        (np.array([3.5]), 3.5),
        (Fraction(1, 4), 0.25),
        (Tensor(1.5, Device("cpu")), 1.5),
        (Tensor(1.5, "cpu"), 1.5),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_a_single_number_is_read(value: object, number: float) -> None:
    assert metric("loss", value) == number


def test_values_that_are_not_finite_are_values() -> None:
    assert math.isnan(metric("loss", np.float32("nan")))
    assert metric("loss", float("-inf")) == -math.inf


@pytest.mark.parametrize(
    "value",
    [
        "nan",
        "2.5",
        None,
        [1.0],
        {"a": 1},
        b"1",
        1j,
        np.array([1.0, 2.0]),
        np.datetime64("2026-01-01"),
        object(),
        float,
        10**400,
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_no_single_number_is_refused_with_its_kind(value: object) -> None:
    with pytest.raises(RefusedError, match="'loss' refused") as refused:
        metric("loss", value)

    assert refused.value.kind == "metric value"


@pytest.mark.parametrize(
    "device",
    [Device("cuda"), Device("meta"), Device("mps"), Device("xla"), object(), "cuda:0"],
    ids=["cuda", "meta", "mps", "xla", "unknown", "text"],
)
def test_a_tensor_on_an_accelerator_is_never_read(device: object) -> None:
    with pytest.raises(RefusedError, match=r"loss\.item\(\)") as refused:
        metric("loss", Tensor(1.0, device))
    with pytest.raises(RefusedError):
        whole("step", Tensor(1.0, device))

    assert refused.value.kind == "accelerator tensor"


def test_a_tensor_spread_over_a_mesh_is_never_read() -> None:
    spread = Tensor(1.0, "cpu")
    spread.device_mesh = object()  # type: ignore[attr-defined]

    with pytest.raises(RefusedError, match="a device mesh"):
        metric("loss", spread)


def test_a_value_whose_reading_fails_is_refused() -> None:
    class Broken:
        shape = None

        def item(self) -> float:
            raise RuntimeError("no data")

    with pytest.raises(RefusedError, match="no data"):
        metric("loss", Broken())


def test_one_bad_metric_does_not_take_the_others_along() -> None:
    complaints = Complaints()
    given: dict[Any, Any] = {"loss": 1.0, "note": "fine", "": 2.0, 7: 3.0, "x" * 300: 4.0, "損失/école": 5}

    kept = metrics(given, complaints)

    assert kept == {"loss": 1.0, "x" * MAX_NAME: 4.0, "損失/école": 5.0}
    assert complaints.counts == {"metric value": 1, "metric name": 2}


@pytest.mark.parametrize(("given", "number"), [(0, 0), (7.0, 7), (np.int32(7), 7), (np.array(7), 7), (2**53, 2**53)])
def test_a_whole_number_is_a_step(given: object, number: int) -> None:
    step = whole("step", given)

    assert step == number
    assert type(step) is int


@pytest.mark.parametrize("given", [-1, 0.5, 2**53 + 1, None, "7", float("nan"), float("inf"), [7]], ids=repr)
def test_what_is_no_whole_number_is_no_step(given: object) -> None:
    with pytest.raises(RefusedError, match="step"):
        whole("step", given)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), "1", None], ids=repr)
def test_an_epoch_is_a_finite_number(given: object) -> None:
    with pytest.raises(RefusedError, match="epoch"):
        finite_number("epoch", given)


def test_finite_and_other_values_part() -> None:
    complaints = Complaints()

    good, odd = finite({"a": 1, "b": math.nan, "c": math.inf, "d": -math.inf, "e": 10**400}, complaints)

    assert good == {"a": 1.0}
    assert odd == {"b": "NaN", "c": "Infinity", "d": "-Infinity"}
    assert complaints.counts == {"metric value": 1}
