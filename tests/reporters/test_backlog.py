"""What waits to be sent is bounded, and the newest value of every metric survives."""

from trainwarden.reporters.backlog import Backlog, Entry
from trainwarden.reporters.inbox import Inbox


def entry(step: int, *, acked: bool = False, **metrics: float) -> Entry:
    return Entry(float(step), "train", step, None, None, None, metrics, acked)


def everything(backlog: Backlog) -> list[Entry]:
    taken = []
    while len(backlog):
        taken += backlog.take(3)
    return taken


def test_entries_come_out_as_they_went_in() -> None:
    backlog = Backlog()
    backlog.extend(entry(step, loss=1.0) for step in range(10))

    assert [each.step for each in backlog.take(4)] == [0, 1, 2, 3]
    assert [each.step for each in everything(backlog)] == [4, 5, 6, 7, 8, 9]
    assert backlog.dropped == 0


def test_the_oldest_gives_way_and_is_counted() -> None:
    backlog = Backlog(max_entries=3)
    backlog.extend(entry(step, loss=1.0) for step in range(10))

    assert [each.step for each in everything(backlog)] == [7, 8, 9]
    assert backlog.dropped == 7


def test_the_newest_value_of_every_metric_survives_at_its_own_step() -> None:
    backlog = Backlog(max_entries=3)
    backlog.add(entry(0, accuracy=0.5, loss=9.0))
    backlog.extend(entry(step, loss=float(step)) for step in range(1, 10))

    taken = everything(backlog)

    assert taken[0] == entry(0, accuracy=0.5)
    assert [each.step for each in taken[1:]] == [7, 8, 9]


def test_a_value_that_a_newer_one_replaced_is_not_kept() -> None:
    backlog = Backlog(max_entries=3)
    backlog.add(entry(0, accuracy=0.5))
    backlog.extend(entry(step, loss=1.0) for step in range(1, 5))
    backlog.add(entry(5, accuracy=0.6))

    assert [each.step for each in everything(backlog)] == [3, 4, 5]


def test_what_wants_an_ack_is_never_dropped() -> None:
    backlog = Backlog(max_entries=3)
    backlog.add(entry(0, acked=True))
    backlog.extend(entry(step, loss=1.0) for step in range(1, 10))

    assert [each.step for each in everything(backlog)] == [0, 7, 8, 9]


def test_a_batch_ends_with_what_wants_an_ack() -> None:
    backlog = Backlog()
    backlog.extend([entry(0), entry(1, acked=True), entry(2)])

    assert [each.step for each in backlog.take(10)] == [0, 1]
    assert [each.step for each in backlog.take(10)] == [2]


def test_large_entries_are_bounded_by_their_values() -> None:
    backlog = Backlog(max_values=2500)
    for step in range(10):
        backlog.add(entry(step)._replace(metrics={f"m{number}": 1.0 for number in range(1000)}))

    assert len(everything(backlog)) == 2
    assert backlog.dropped == 8


def test_ever_new_names_do_not_grow_without_bound() -> None:
    backlog = Backlog(max_entries=10, max_kept=20)
    for step in range(1000):
        backlog.add(entry(step)._replace(metrics={f"loss/{step}": 1.0}))

    assert len(backlog) == 30
    assert [each.step for each in everything(backlog)] == list(range(970, 1000))
    assert not backlog._newest


def test_an_inbox_that_nobody_empties_stays_bounded() -> None:
    inbox, backlog = Inbox(room=100), Backlog()
    inbox.put(entry(0, accuracy=0.5))
    for step in range(1, 1000):
        inbox.put(entry(step, loss=float(step)))
    assert len(inbox) == 100

    inbox.empty_into(backlog)

    taken = everything(backlog)
    assert len(inbox) == 0
    assert taken[0] == entry(0, accuracy=0.5)
    assert [each.step for each in taken[1:]] == list(range(890, 1000))
    assert backlog.dropped == 890
