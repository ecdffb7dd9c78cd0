"""The torch loop: tensors as metrics, and values that come from a device later than their step."""

from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from trainwarden.reporters import Recorder
from trainwarden.reporters.torch import Event, Readback, TrainingLoop
from trainwarden.reporters.wire import Command


class Device:
    """A device that delivers when the test says so: what a GPU does, where there is none."""

    def __init__(self) -> None:
        self.copied: list[tuple[torch.Tensor, torch.Tensor, Arrival]] = []

    def copy(self, value: torch.Tensor) -> "tuple[torch.Tensor, Event]":
        host, arrival = torch.zeros(1), Arrival(self, len(self.copied))
        self.copied.append((value, host, arrival))
        return host, arrival

    def deliver(self, number: int) -> None:
        value, host, arrival = self.copied[number]
        host.copy_(torch.tensor([float(value.numel())]))
        arrival.there = True


class Arrival:
    """The event after one copy."""

    def __init__(self, device: Device, number: int) -> None:
        self.device, self.number, self.there, self.waited = device, number, False, False

    def query(self) -> bool:
        return self.there

    def synchronize(self) -> None:
        self.waited = True
        self.device.deliver(self.number)


def on_device() -> torch.Tensor:
    """A tensor that can't be read here: one on the meta device has no value at all."""
    return torch.empty(1, device="meta")


class Reports:
    def __init__(self) -> None:
        self.all: list[tuple[int, dict[str, object]]] = []

    def __call__(self, step: int, metrics: Mapping[str, object]) -> None:
        self.all.append((step, dict(metrics)))


def test_values_on_the_host_are_reported_at_once() -> None:
    reports = Reports()
    Readback(reports).put(1, {"loss": torch.tensor(0.5, requires_grad=True), "lr": 0.1, "whole": torch.tensor([3])})

    assert reports.all == [(1, {"loss": 0.5, "lr": 0.1, "whole": 3})]


def test_values_on_a_device_are_reported_when_they_are_there_in_the_order_of_steps() -> None:
    device, reports = Device(), Reports()
    readback = Readback(reports, copy=device.copy)
    readback.put(1, {"loss": on_device()})
    readback.put(2, {"loss": on_device(), "lr": 0.1})
    readback.put(3, {})
    device.deliver(1)
    readback.flush(wait=False)
    assert reports.all == []

    device.deliver(0)
    readback.put(4, {})
    assert reports.all == [(1, {"loss": 1.0}), (2, {"loss": 1.0, "lr": 0.1}), (4, {})]
    assert not any(arrival.waited for _, _, arrival in device.copied)


def test_only_the_end_of_a_training_waits_for_the_device() -> None:
    device, reports = Device(), Reports()
    readback = Readback(reports, copy=device.copy)
    readback.put(1, {"loss": on_device()})
    readback.flush(wait=True)

    assert reports.all == [(1, {"loss": 1.0})]
    assert device.copied[0][2].waited


def test_what_a_device_never_delivers_is_bounded() -> None:
    device, reports = Device(), Reports()
    readback = Readback(reports, copy=device.copy, most=3)
    for step in range(10):
        readback.put(step, {"loss": on_device()})

    assert readback.lost == 7
    for number in range(10):
        device.deliver(number)
    readback.flush(wait=False)
    assert [step for step, _ in reports.all] == [7, 8, 9]


def test_a_tensor_of_several_numbers_is_left_out() -> None:
    reports = Reports()
    Readback(reports).put(1, {"loss": torch.zeros(3), "lr": 0.1})

    assert reports.all == [(1, {"lr": 0.1})]


def test_a_torch_loop_saves_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.zeros(1)

    def save(step: int) -> Path:
        torch.save({"step": step, "weight": weight}, tmp_path / "last.pt")
        return tmp_path / "last.pt"

    with Recorder() as recorder, TrainingLoop(total=8, save=save) as loop:
        for step, _ in loop.steps(range(8)):
            weight += 1
            loop.log(loss=weight.mean())
            if step == 3:
                replies = recorder.send(Command(id="c", run="", op="stop"))
    final = recorder.wait(replies)
    assert final is not None
    assert final.checkpoint is not None

    monkeypatch.setenv("TRAINWARDEN_RESUME_FROM", final.checkpoint.path)
    with Recorder() as recorder, TrainingLoop(total=8, save=save) as loop:
        assert loop.resume_path is not None
        saved = torch.load(loop.resume_path)
        weight = saved["weight"]
        for _ in loop.steps(range(8), start=saved["step"]):
            weight += 1
            loop.log(loss=weight.mean())

    assert recorder.metrics("loss") == [(step, float(step)) for step in (4, 5, 6, 7, 8)]
    assert recorder.reports[0].step == 3
