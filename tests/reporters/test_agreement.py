"""Ranks that agree on a step: every interleaving ends with all ranks doing the same."""

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from trainwarden.reporters.agreement import Agreed, Agreement, Store
from trainwarden.reporters.wire import Command

distributed = pytest.importorskip("torch.distributed")


def command(id_: str = "c1", *, hold: bool = False) -> Command:
    return Command(id=id_, run="r", op="checkpoint", hold=hold, timeout=60.0, holdFor=60.0)


class Ranks:
    """Ranks without threads of their own: a test says whose turn it is."""

    def __init__(self, world: int, *, patience: float = 30.0) -> None:
        self.store = cast("Store", distributed.HashStore())
        self.asked: Command | None = None
        self.refused: list[tuple[str, str]] = []
        self.acted: dict[int, list[tuple[int, str]]] = {rank: [] for rank in range(world)}
        self.steps = dict.fromkeys(range(world), 0)
        self.all = [self._rank(rank, world, patience) for rank in range(world)]

    def _rank(self, rank: int, world: int, patience: float) -> Agreement:
        return Agreement(
            self.store,
            rank=rank,
            world=world,
            patience=patience,
            source=(lambda: self.asked) if rank == 0 else None,
            cancelled=(lambda given, why: self.refused.append((given.id, why))) if rank == 0 else None,
        )

    def polls(self, *ranks: int) -> None:
        for rank in ranks:
            self.all[rank].poll()

    def steps_once(self, rank: int) -> Agreed | None:
        self.steps[rank] += 1
        agreed = self.all[rank].at(self.steps[rank])
        if agreed is not None:
            self.acted[rank].append((self.steps[rank], agreed.command.id))
        return agreed

    def may_step(self, rank: int) -> bool:
        """Whether `at` would come back at once."""
        current = self.all[rank]._round
        return current is None or current.step is not None or self.steps[rank] + 1 < current.border


@pytest.mark.parametrize("seed", range(100))
def test_all_ranks_act_at_the_same_step_however_their_turns_fall(seed: int) -> None:
    chance = random.Random(seed)
    world = chance.choice([2, 3, 5])
    ranks = Ranks(world)
    pace = [chance.choice([1, 1, 3, 6]) for _ in range(world)]  # some ranks step more often than others
    ids = [f"c{number}" for number in range(4)]

    for _ in range(50_000):
        done = len(ranks.acted[0])
        ranks.asked = command(ids[done]) if done < len(ids) and chance.random() < 0.1 else ranks.asked
        rank = chance.randrange(world)
        if chance.random() < 0.5:
            ranks.polls(rank)
        elif (
            chance.randrange(pace[rank]) == 0
            and ranks.steps[rank] < min(ranks.steps.values()) + 20
            and ranks.may_step(rank)
        ):
            ranks.steps_once(rank)
        if all(len(acted) == len(ids) for acted in ranks.acted.values()):
            break

    assert ranks.refused == []
    assert [id_ for _, id_ in ranks.acted[0]] == ids
    assert all(ranks.acted[rank] == ranks.acted[0] for rank in range(world))


def test_a_step_number_that_is_skipped_is_acted_on_at_the_next_one() -> None:
    ranks = Ranks(2)
    ranks.polls(0, 1)
    ranks.asked = command()
    ranks.polls(0, 1, 0, 1)

    for rank in (0, 1):
        assert ranks.all[rank].at(1) is None
        agreed = ranks.all[rank].at(10)
        assert agreed is not None
        assert agreed.step == 2


def test_nothing_is_proposed_while_a_rank_takes_no_part() -> None:
    ranks = Ranks(2, patience=0.0)
    ranks.asked = command()
    ranks.polls(0, 0, 0)

    assert ranks.steps_once(0) is None
    assert ranks.refused == [("c1", "no trainwarden reporter on rank 1")]


def test_a_round_is_cancelled_for_all_when_a_rank_does_not_answer() -> None:
    ranks = Ranks(3, patience=0.0)
    for rank in range(3):
        ranks.polls(rank)
    ranks.asked = command()
    ranks.polls(0)
    ranks.polls(1, 2, 2)  # they promise too late

    assert [ranks.steps_once(rank) for rank in range(3) for _ in range(5)] == [None] * 15
    assert ranks.refused == [("c1", "the ranks did not agree on a step: no answer of ranks 1, 2 in time")]

    ranks.all[0]._patience = 30.0
    ranks.asked = command("c2")
    for _ in range(3):
        for rank in range(3):
            ranks.polls(rank)
    for rank in range(3):
        while not ranks.acted[rank]:
            ranks.steps_once(rank)
    assert ranks.acted[0] == ranks.acted[1] == ranks.acted[2]


def test_a_rank_that_waits_too_long_at_its_border_cancels_for_all() -> None:
    ranks = Ranks(2, patience=0.2)
    ranks.polls(0, 1)
    ranks.asked = command()
    ranks.polls(0, 1)  # both promised; rank 0 is not polled again, as if it had died
    stop = threading.Event()

    def poll_rank_1() -> None:
        while not stop.wait(0.01):
            ranks.polls(1)

    thread = threading.Thread(target=poll_rank_1)
    thread.start()
    assert [ranks.steps_once(1) for _ in range(3)] == [None, None, None]
    stop.set()
    thread.join()

    ranks.polls(0)
    assert ranks.steps_once(0) is None
    assert ranks.steps_once(0) is None
    assert ranks.refused[0][1].startswith("the ranks did not agree on a step: rank 1 waited")


@pytest.mark.parametrize("leaver", [0, 1], ids=["rank 0 ends first", "rank 1 ends first"])
def test_a_rank_that_ends_its_training_cancels_what_is_not_decided(leaver: int) -> None:
    ranks = Ranks(2)
    ranks.polls(0, 1)
    ranks.asked = command()
    ranks.polls(0)

    ranks.all[leaver].leave()
    other = 1 - leaver
    ranks.polls(other, other, other)

    assert [ranks.steps_once(other) for _ in range(5)] == [None] * 5
    assert len(ranks.refused) == 1
    assert "ended" in ranks.refused[0][1]


def test_a_command_after_a_rank_has_ended_is_refused() -> None:
    ranks = Ranks(2)
    ranks.polls(0, 1)
    ranks.all[1].leave()
    ranks.asked = command()
    ranks.polls(0, 0)

    assert ranks.refused == [("c1", "a rank has ended its training")]


class Broken:
    """A store whose server has gone."""

    def check(self, keys: list[str], /) -> bool:
        raise RuntimeError("connection reset")

    def get(self, key: str, /) -> bytes:
        raise RuntimeError("connection reset")

    def set(self, key: str, value: str, /) -> None:
        raise RuntimeError("connection reset")

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        raise RuntimeError("connection reset")


def test_training_goes_on_and_commands_are_refused_when_the_store_is_gone() -> None:
    ranks = Ranks(2)
    ranks.polls(0, 1)
    ranks.asked = command()
    ranks.polls(0, 1)
    for rank in ranks.all:
        rank._store = Broken()
        for _ in range(3):
            rank.poll()

    assert [ranks.steps_once(rank) for rank in (0, 1) for _ in range(5)] == [None] * 10
    ranks.asked = command("c2")
    ranks.polls(0)
    assert [id_ for id_, _ in ranks.refused] == ["c1", "c2"]


def test_what_all_ranks_do_together_is_done_when_the_last_one_has_said_so() -> None:
    ranks = Ranks(2)
    said: list[str] = []
    for problem in ("", "no space left"):
        ranks.all[0].together(said.append)
        ranks.polls(0)
        before = len(said)
        ranks.all[1].together(said.append, problem=problem)
        ranks.polls(1, 0)
        assert len(said) == before + 1

    ranks.all[0].together(said.append, within=0.0)
    ranks.polls(0)
    assert said == ["", "rank 1: no space left", "rank 1 did not finish in time"]


def test_the_end_of_a_hold_is_told_to_the_other_ranks() -> None:
    ranks = Ranks(2)
    agreed = Agreed(0, command(hold=True), 2)
    ends: list[str] = []
    waiting = threading.Thread(target=lambda: ends.append(ranks.all[1].wait_for_hold_end(agreed)))
    waiting.start()

    ranks.all[0].hold_ended(agreed, "released")
    ranks.polls(0)
    while waiting.is_alive():
        ranks.polls(1)
        waiting.join(0.01)

    assert ends == ["released"]


def test_a_rank_without_word_of_the_hold_goes_on_after_its_time() -> None:
    ranks = Ranks(2, patience=0.0)
    brief = Command(id="c", run="r", op="checkpoint", hold=True, timeout=0.05, holdFor=0.05)

    assert ranks.all[1].wait_for_hold_end(Agreed(0, brief, 2)) == ""


def test_ranks_without_a_reporter_that_is_active_stop_asking() -> None:
    store = cast("Store", distributed.HashStore())
    first = Agreement(store, rank=0, world=2, idle=True)
    second = Agreement(store, rank=1, world=2)
    first.poll()
    second.poll()

    assert second._off
    second.together(lambda problem: None)
    assert not second._outbox


STORES: dict[str, Callable[[], object]] = {
    "HashStore": distributed.HashStore,
    "TCPStore": lambda: distributed.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20)),
}


@pytest.mark.parametrize("kind", STORES)
def test_ranks_with_threads_act_at_the_same_step_and_hold_together(kind: str) -> None:
    store = STORES[kind]()
    world, waiting, answered = 3, [command("c1", hold=True), command("c2", hold=True)], threading.Event()
    acted: dict[int, list[tuple[int, str]]] = {rank: [] for rank in range(world)}
    refused: list[str] = []

    def train(rank: int) -> None:
        part = Agreement(
            cast("Store", distributed.PrefixStore("x", store)),
            rank=rank,
            world=world,
            source=(lambda: waiting[0] if waiting else None) if rank == 0 else None,
            cancelled=(lambda given, why: refused.append(why)) if rank == 0 else None,
        )
        part.start()
        pause = threading.Event()
        for step in range(1, 100_000):
            pause.wait(0.001 * (rank + 1))
            agreed = part.at(step)
            if agreed is None:
                continue
            acted[rank].append((step, agreed.command.id))
            if rank == 0:
                waiting.pop(0)
                part.hold_ended(agreed, "released")
            else:
                assert part.wait_for_hold_end(agreed) == "released"
            if len(acted[rank]) == 2:
                break
        answered.wait(0)
        part.leave()

    threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert refused == []
    assert [id_ for _, id_ in acted[0]] == ["c1", "c2"]
    assert acted[0] == acted[1] == acted[2]
