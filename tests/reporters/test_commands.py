"""Commands: accepted at once, done once, answered to all who asked, remembered."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from trainwarden.reporters.commands import MAX_REMEMBERED, Commands, HoldEnd
from trainwarden.reporters.wire import Checkpoint, Command, Operation, Reply, encode

RUN = "run-1"


class Background:
    """Gives a proof when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Callable[[Checkpoint | str], None]]] = []
        self.held = 0

    def prove(self, path: str, step: int, done: Callable[[Checkpoint | str], None]) -> None:
        self.asked.append((path, step, done))

    @contextmanager
    def holding(self) -> Iterator[None]:
        self.held += 1
        yield

    def give_proof(self) -> None:
        path, step, done = self.asked.pop(0)
        done(Checkpoint(step, path, 1, "sha256:1"))


@pytest.fixture
def background() -> Background:
    return Background()


@pytest.fixture
def commands(background: Background) -> Commands:
    one = Commands(RUN, background)
    one.supports("checkpoint", "stop")
    return one


def command(name: str = "c1", op: Operation = "checkpoint", **more: Any) -> Command:
    return Command(id=name, run=RUN, op=op, **more)


def states(replies: list[Reply]) -> list[str]:
    return [reply.state for reply in replies]


def test_a_command_is_accepted_waits_and_is_answered_with_its_proof(commands: Commands, background: Background) -> None:
    replies: list[Reply] = []
    commands.ask(command(), replies.append)
    assert states(replies) == ["accepted"]
    assert commands.pending() == command()

    commands.saved(command(), path="/out/c", step=9)
    assert commands.pending() is None
    assert states(replies) == ["accepted"]
    assert not commands.settled()

    background.give_proof()
    assert states(replies) == ["accepted", "saved"]
    assert replies[1].checkpoint == Checkpoint(9, "/out/c", 1, "sha256:1")
    assert commands.settled()


def test_all_who_asked_get_the_final_reply_and_it_is_done_once(commands: Commands, background: Background) -> None:
    first: list[Reply] = []
    second: list[Reply] = []
    third: list[Reply] = []
    commands.ask(command(), first.append)
    commands.ask(command(), second.append)
    commands.saved(command(), path="/out/c", step=9)
    commands.saved(command(), path="/out/c", step=9)
    background.give_proof()
    commands.ask(command(), third.append)

    assert states(first) == states(second) == ["accepted", "saved"]
    assert states(third) == ["saved"]
    assert not background.asked
    assert commands.pending() is None


def test_one_checkpoint_answers_all_commands_that_wait(commands: Commands, background: Background) -> None:
    replies: list[Reply] = []
    commands.ask(command("c1", hold=True, holdFor=5), replies.append)
    commands.ask(command("c2", "stop"), replies.append)
    commands.ask(command("c3"), replies.append)

    together = commands.pending()
    assert together == command("c3", "stop", hold=True, holdFor=5.0)

    commands.saved(together, path="/out/c", step=9)
    background.give_proof()
    assert [(reply.id, reply.state) for reply in replies[3:]] == [("c1", "saved"), ("c2", "saved"), ("c3", "saved")]


def test_a_command_that_comes_during_a_save_gets_a_save_of_its_own(commands: Commands, background: Background) -> None:
    commands.ask(command("c1"), _nobody)
    saving = commands.pending()
    assert saving is not None
    commands.ask(command("c2"), _nobody)

    commands.saved(saving, path="/out/c", step=9)

    assert commands.pending() == command("c2")


def test_what_was_not_declared_is_unsupported(background: Background) -> None:
    commands = Commands(RUN, background)
    replies: list[Reply] = []
    commands.ask(command("c1"), replies.append)
    commands.supports("checkpoint")
    commands.ask(command("c1"), replies.append)
    commands.ask(command("c2", "stop"), replies.append)
    commands.ask(command("c3"), replies.append)

    assert states(replies) == ["unsupported", "unsupported", "unsupported", "accepted"]
    helped = "let its loop save when asked (docs/reporter.md, Take commands)"
    assert replies[0].reason == f"this training can't do 'checkpoint' when it is asked; {helped}"
    assert replies[2].reason == f"this training can't do 'stop' when it is asked; it can: checkpoint; {helped}"


def test_a_failure_is_answered_with_its_reason(commands: Commands, background: Background) -> None:
    replies: list[Reply] = []
    commands.ask(command("c1"), replies.append)
    commands.failed(command("c1"), "disk full")
    commands.ask(command("c2"), replies.append)
    commands.saved(command("c2"), path="/out/c", step=9)
    background.asked.pop()[2]("/out/c holds no file")

    assert states(replies) == ["accepted", "failed", "accepted", "failed"]
    assert [replies[1].reason, replies[3].reason] == ["disk full", "/out/c holds no file"]


def test_what_is_overdue_fails_and_its_later_result_is_remembered(commands: Commands, background: Background) -> None:
    replies: list[Reply] = []
    commands.ask(command("c1", timeout=0), replies.append)
    saving = commands.pending()
    assert saving is not None

    time.sleep(0.001)
    commands.expire()
    assert states(replies) == ["accepted", "failed"]
    assert "within 0 s" in replies[1].reason
    assert commands.pending() is None

    commands.saved(saving, path="/out/c", step=9)
    background.give_proof()
    commands.ask(command("c1", timeout=0), replies.append)
    assert states(replies) == ["accepted", "failed", "saved"]


def test_malformed_and_foreign_commands_are_left_alone(commands: Commands, caplog: pytest.LogCaptureFixture) -> None:
    replies: list[Reply] = []
    commands.receive(b"{", replies.append)
    commands.receive(encode(Command(id="c1", run="other", op="checkpoint")), replies.append)

    assert not replies
    assert commands.pending() is None
    assert "does not fit the wire" in caplog.text


def test_memory_is_bounded(commands: Commands) -> None:
    for number in range(10 * MAX_REMEMBERED):
        commands.ask(command(f"c{number}"), _nobody)
        commands.failed(command(f"c{number}"), "no")

    assert len(commands._asked) <= MAX_REMEMBERED


def test_a_command_without_hold_holds_nothing(commands: Commands, background: Background) -> None:
    assert commands.hold(command()) == "unheld"
    assert background.held == 0


def _release(commands: Commands) -> None:
    commands.ask(command("r", "release"), _nobody)


def _fail(commands: Commands) -> None:
    commands.failed(command(hold=True), "no")


@pytest.mark.parametrize(
    ("act", "end"),
    [(_release, "released"), (_fail, "failed"), (Commands.close, "failed")],
    ids=["release", "failed", "closed"],
)
@pytest.mark.parametrize("early", [True, False], ids=["before the hold", "during the hold"])
def test_a_hold_ends(
    commands: Commands, background: Background, act: Callable[[Commands], None], end: HoldEnd, early: bool
) -> None:
    commands.ask(command(hold=True), _nobody)
    if early:
        act(commands)
    else:
        threading.Timer(0.05, act, [commands]).start()

    assert commands.hold(command(hold=True)) == end
    assert background.held == 1


def test_a_hold_ends_after_hold_for_counted_from_receipt(commands: Commands) -> None:
    commands.ask(command(hold=True, holdFor=0.05), _nobody)

    assert commands.hold(command(hold=True, holdFor=0.05)) == "expired"


def test_a_hold_ends_when_the_training_wants_it(commands: Commands) -> None:
    answers = iter([False, False, True])
    commands.ask(command(hold=True), _nobody)

    assert commands.hold(command(hold=True), should_end=lambda: next(answers)) == "ended"


def test_a_hold_of_a_closed_reporter_ends(commands: Commands) -> None:
    commands.ask(command(hold=True), _nobody)
    commands.saved(command(hold=True), path="/out/c", step=1)
    threading.Timer(0.05, commands.close).start()

    assert commands.hold(command(hold=True)) == "closed"


def test_another_rank_holds_on_what_it_was_told_by_its_peers() -> None:
    elsewhere = Commands(RUN)

    assert elsewhere.hold(command(hold=True, holdFor=0.05)) == "expired"
    elsewhere.saved(command(), path="/out/c", step=1)
    elsewhere.failed(command(), "no")


def test_signals_are_handled_while_the_training_holds(commands: Commands) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    try:
        threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGUSR1]).start()
        with pytest.raises(KeyboardInterrupt):
            commands.hold(command(hold=True))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_release_is_accepted_or_says_that_nothing_is_held(commands: Commands) -> None:
    replies: list[Reply] = []
    commands.ask(command("r1", "release"), replies.append)
    commands.ask(command("c1", hold=True), _nobody)
    commands.ask(command("r2", "release"), replies.append)
    commands.ask(command("r2", "release"), replies.append)

    assert states(replies) == ["failed", "accepted", "accepted"]
    assert replies[0].reason == "nothing is held"


def test_a_release_ends_the_hold_that_another_command_brought_along(commands: Commands, background: Background) -> None:
    commands.ask(command("c1", hold=True), _nobody)
    commands.ask(command("c2"), _nobody)
    together = commands.pending()
    assert together is not None
    threading.Timer(0.05, _release, [commands]).start()

    assert together.id == "c2"
    assert commands.hold(together) == "released"


def test_a_command_does_not_hold_for_one_that_was_done_before(commands: Commands) -> None:
    commands.ask(command("c1", hold=True), _nobody)
    commands.ask(command("c2"), _nobody)

    commands.failed(command("c1", hold=True), "no")

    assert commands.pending() == command("c2")


def test_a_hold_that_has_ended_is_not_released(commands: Commands) -> None:
    replies: list[Reply] = []
    commands.ask(command(hold=True, holdFor=0), _nobody)
    assert commands.hold(command(hold=True, holdFor=0)) == "expired"

    commands.ask(command("r", "release"), replies.append)

    assert states(replies) == ["failed"]


def test_what_waits_when_the_training_ends_fails(commands: Commands) -> None:
    replies: list[Reply] = []
    commands.ask(command("c1"), replies.append)
    commands.close()
    commands.ask(command("c2"), replies.append)

    assert states(replies) == ["accepted", "failed", "failed"]
    assert commands.settled()


def _nobody(_: Reply) -> None:
    """Asked by someone who doesn't listen."""
