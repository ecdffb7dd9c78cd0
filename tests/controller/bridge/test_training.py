"""Which run a post is of, its step, and what was logged."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.controller.bridge.posting import T0, posted, sender, status_of

from trainwarden.controller.bridge.training import Post, Stored, Training, follow, recover
from trainwarden.controller.decoding import decode_report
from trainwarden.reporters.wire import Report, encode


def post(second: float = 0, **what: Any) -> Post:
    pod = what.pop("pod", "uid-1")
    return Post(sender(pod=pod), status_of(posted(at=T0 + timedelta(seconds=second), **what)))


BEGIN = {"percent": 0, "total_steps": 1000}


def step(number: int, *, loss: object = 2.5, epoch: object = 0.1, **more: object) -> dict[str, Any]:
    usual = {"percent": number // 10, "left": 60, "loss": loss, "grad_norm": 1.0, "learning_rate": 0.001}
    usual |= {"epoch": epoch, "current_step": number, "total_steps": 1000, "current_epoch": number / 500}
    return usual | more


def reports(*posts: Post, training: Training | None = None) -> list[Report]:
    """All that is sent for posts; each fits the wire."""
    sent = []
    for one in posts:
        training, report = follow(training, one)
        if report is not None:
            decode_report(encode(report))
            sent.append(report)
    return sent


def test_a_callbacks_posts_become_reports_of_one_run() -> None:
    first, second, third, last = reports(
        post(0, **BEGIN),
        post(5, **step(40)),
        post(10, **step(80, loss=2.25, epoch=0.2)),
        post(12, percent=100, left=0, loss=2.25, grad_norm=1.0, learning_rate=0.001, epoch=0.2),
    )

    assert {report.run for report in (first, second, third, last)} == {f"bridge.uid-1.{int(T0.timestamp() * 1e6)}"}
    assert [report.seq for report in (first, second, third, last)] == [0, 1, 2, 3]
    assert (first.phase, first.step, first.total, first.metrics) == ("init", 0, 1000, {})
    assert (second.phase, second.step, second.total, second.epoch) == ("train", 40, 1000, 0.08)
    assert second.metrics == {"loss": 2.5, "grad_norm": 1.0, "learning_rate": 0.001}
    assert second.ts == T0.timestamp() + 5
    assert second.pod == "bert-node-0-0"
    assert third.metrics == {"loss": 2.25, "grad_norm": 1.0, "learning_rate": 0.001}
    assert (last.phase, last.step, last.total, last.metrics) == ("done", 80, 1000, {})


def test_a_hundred_percent_leaves_the_step_where_it_was() -> None:
    """Training that stopped early says 100 % too."""
    sent = reports(post(0, **BEGIN), post(5, **step(40)), post(9, percent=100, left=0, loss=2.5, epoch=0.1))

    assert (sent[-1].step, sent[-1].total) == (40, 1000)


def test_a_training_too_short_for_a_step_says_none() -> None:
    sent = reports(post(0, **BEGIN), post(2, percent=100, left=0, loss=2.5, epoch=0.1))

    assert [(report.step, report.total) for report in sent] == [(0, 1000), (0, 1000)]
    assert sent[-1].metrics == {"loss": 2.5}


def test_what_was_not_logged_again_is_not_sent_again() -> None:
    sent = reports(post(0, **step(40)), post(5, **step(60)), post(10, **step(80)))

    assert [sorted(report.metrics) for report in sent] == [["grad_norm", "learning_rate", "loss"], [], []]
    assert [report.step for report in sent] == [40, 60, 80]


def test_a_loss_that_is_logged_with_the_same_value_is_sent() -> None:
    """Losses that stay at 0.0, or NaN, are what policies look for."""
    sent = reports(
        post(0, **step(40, loss=0.0, epoch=0.1)),
        post(5, **step(80, loss=0.0, epoch=0.2)),
        post(10, **step(120, loss="nan", epoch=0.3, learning_rate=0.0009)),
        post(15, **step(160, loss="nan", epoch=0.4, learning_rate=0.0008)),
    )

    assert [report.metrics.get("loss") for report in sent] == [0.0, 0.0, None, None]
    assert [report.nonfinite for report in sent] == [{}, {}, {"loss": "NaN"}, {"loss": "NaN"}]


def test_an_evaluation_is_sent_once() -> None:
    evaluated = {"eval_loss": 2.0, "eval_runtime": 3.1}
    sent = reports(
        post(0, **step(40)),
        post(5, **step(80, epoch=0.2, **evaluated)),
        post(10, **step(120, epoch=0.3, loss=2.2, **evaluated)),
        post(15, **step(160, epoch=0.4, loss=2.2, eval_loss=2.0, eval_runtime=2.9)),
    )

    assert ["eval_loss" in report.metrics for report in sent] == [False, True, False, True]


def test_who_says_no_step_has_all_metrics_sent() -> None:
    """The SDK's update_trainjob_status sends what its caller gives."""
    sent = reports(post(0, percent=10, loss=2.0), post(5, percent=20, loss=2.0))

    assert [report.metrics for report in sent] == [{"loss": 2.0}, {"loss": 2.0}]
    assert [(report.step, report.total, report.phase) for report in sent] == [(10, 100, "train"), (20, 100, "train")]


def test_percents_count_steps_where_the_total_is_said() -> None:
    sent = reports(post(0, percent=10, total_steps=5000, loss=1.0), post(5, percent=20, total_steps=5000, loss=1.0))

    assert [(report.step, report.total) for report in sent] == [(500, 5000), (1000, 5000)]


@pytest.mark.parametrize(
    ("text", "finite", "nonfinite"),
    [
        ("1.5", 1.5, None),
        ("-3e-05", -3e-05, None),
        ("7", 7.0, None),
        ("nan", None, "NaN"),
        ("inf", None, "Infinity"),
        ("+Inf", None, "Infinity"),
        ("-Infinity", None, "-Infinity"),
        ("1e999", None, "Infinity"),
        ("1_000", None, None),
        ("--inf", None, None),
        ("fast", None, None),
        ("٣", None, None),
    ],
)
def test_numbers_are_read_from_texts(text: str, finite: float | None, nonfinite: str | None) -> None:
    (report,) = reports(post(0, percent=10, value=text))

    assert report.metrics.get("value") == finite
    assert report.nonfinite.get("value") == nonfinite


@pytest.mark.parametrize("total", ["-1", "9223372036854775807", "nan", "many"])
def test_a_total_that_is_none_is_left_out(total: str) -> None:
    (report,) = reports(post(0, percent=0, left=1, current_step=5, total_steps=total))

    assert (report.step, report.total) == (5, None)


def test_a_new_pod_is_a_new_run() -> None:
    """Each pod has a training of its own in mind."""
    sent = [*reports(post(0, **step(40))), *reports(post(0, pod="uid-2", **step(40)))]

    assert len({report.run for report in sent}) == 2


def test_a_new_trainer_in_the_same_pod_is_a_new_run() -> None:
    sent = reports(post(0, **BEGIN), post(5, **step(40)), post(9, **BEGIN), post(14, **step(20)))

    assert [report.seq for report in sent] == [0, 1, 0, 1]
    assert sent[0].run == sent[1].run != sent[2].run == sent[3].run


def test_a_new_trainer_whose_beginning_was_not_heard_is_a_new_run() -> None:
    sent = reports(post(0, **step(400)), post(5, **step(20)))

    assert sent[0].run != sent[1].run
    assert sent[1].seq == 0


def test_a_training_that_resumes_begins_at_nothing_and_goes_on_at_its_step() -> None:
    sent = reports(post(0, **BEGIN), post(5, **step(500)))

    assert [(report.phase, report.step) for report in sent] == [("init", 0), ("train", 500)]
    assert sent[0].run == sent[1].run


def test_a_post_that_comes_twice_is_sent_once() -> None:
    assert len(reports(post(0, **BEGIN), post(0, **BEGIN), post(5, **step(40)), post(5, **step(40)))) == 2


def test_a_post_that_comes_late_is_left_out() -> None:
    sent = reports(post(0, **step(40)), post(10, **step(80)), post(5, **step(60)), post(15, **step(100)))

    assert [report.step for report in sent] == [40, 80, 100]
    assert len({report.run for report in sent}) == 1


def test_a_clock_that_was_set_back_costs_a_new_trainer_one_post() -> None:
    sent = reports(post(7200, **step(400)), post(5, **step(20)), post(10, **step(40)))

    assert [report.step for report in sent] == [400, 40]
    assert sent[0].run != sent[1].run


def test_a_clock_that_was_set_back_costs_a_training_nothing() -> None:
    sent = reports(post(7200, **step(400)), post(5, **step(420)), post(10, **step(440)))

    assert [report.step for report in sent] == [400, 420, 440]
    assert len({report.run for report in sent}) == 1


def test_a_run_goes_on_after_a_restart_of_ours() -> None:
    before = reports(post(0, **BEGIN), post(5, **step(40)))[-1]
    stored = _stored(before)

    known = recover(stored, "uid-1")
    after = reports(post(10, **step(80)), training=known)[0]

    assert (after.run, after.seq) == (before.run, before.seq + 1)
    assert recover(stored, "uid-2") is None


def test_a_training_that_only_began_goes_on_after_a_restart_of_ours() -> None:
    before = reports(post(0, **BEGIN))[-1]

    after = reports(post(5, **step(40)), training=recover(_stored(before), "uid-1"))[0]

    assert (after.run, after.seq) == (before.run, 1)


def test_a_beginning_that_was_dropped_still_begins_a_run() -> None:
    (earlier,) = reports(post(0, **step(400)))
    known, _ = follow(None, post(0, **step(400)))
    merged = post(14, **step(20)).after(post(9, **BEGIN)).after(post(5, **step(420)))

    (later,) = reports(merged, training=known)

    assert later.run == f"bridge.uid-1.{int((T0 + timedelta(seconds=9)).timestamp() * 1e6)}" != earlier.run
    assert (later.step, later.dropped) == (20, 2)


def _stored(report: Report) -> Stored:
    body = json.loads(encode(report))
    return Stored(**{name: body[name] for name in Stored.__struct_fields__ if name in body})
