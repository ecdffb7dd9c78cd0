"""The test file: which policies, which runs, and what is expected of them when. Unknown keys are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, field_validator, model_validator

from trainwarden.policies.decision import ActionState, ActionType, Mode, Verdict
from trainwarden.policies.documents import close, yaml_type
from trainwarden.policies.durations import Duration
from trainwarden.policies.models import SpecModel
from trainwarden.policies.unittests.life import Life, read_life
from trainwarden.policies.unittests.numbers import Numbers, read_numbers

__all__ = [
    "ActionText",
    "BudgetFacts",
    "Change",
    "Executor",
    "Expectation",
    "Facts",
    "JobFacts",
    "PolicyTests",
    "UnitTest",
]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_ACTIONS = [kind.value for kind in ActionType]
_STATES = [state.value for state in ActionState]


def _moment(given: object) -> object:
    """A text such as 2026-12-24T18:00:00Z as an aware moment."""
    if not isinstance(given, str):
        return given
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(f"{given!r}; write a moment such as 2026-12-24T18:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{given!r} has no time zone; write {given}Z")
    return moment


def _row(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"a {yaml_type(given)}; write a row such as 3-0.1x20 1x40")  # noqa: TRY004
    return given


def _condition(given: object) -> object:
    return str(given).lower() if isinstance(given, bool) else given


def _action(given: object) -> object:
    """`Suspend WouldAct` or `Suspend WouldAct Audit`, checked word by word."""
    words = given.split() if isinstance(given, str) else []
    if not 2 <= len(words) <= 3:
        raise ValueError(f"{given!r}; write action, state and perhaps reason, such as Suspend WouldAct")
    for word, known in zip(words, (_ACTIONS, _STATES), strict=False):
        if word not in known:
            remedy = close(word, known) or f"{', '.join(known)} are right"
            raise ValueError(f"{word!r} in {given!r}; {remedy}")
    return " ".join(words)


Moment = Annotated[datetime, BeforeValidator(_moment)]
Condition = Annotated[Literal["true", "false", "unknown"], BeforeValidator(_condition)]
ActionText = Annotated[str, BeforeValidator(_action)]
NumberRow = Annotated[Numbers, PlainValidator(lambda given: read_numbers(_row(given)))]
LifeRow = Annotated[Life, PlainValidator(lambda given: read_life(_row(given)))]
Answer = Literal["Done", "Failed", "Refused", "none"]


class BudgetFacts(SpecModel):
    """State of the budget that the job draws on."""

    name: str = "budget"
    """Name of the budget."""
    limit: float
    """Its limit, in its own unit."""
    used: float
    """Used of it so far, by all jobs."""


class Facts(SpecModel):
    """What is known of the job from outside its reports, and may change."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the job."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    namespace_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of its namespace."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs of the whole job."""
    gpu_type: str = ""
    """Product name of its GPUs."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """Nodes of the job."""
    queue: str = ""
    """Queue that admitted it."""
    owner: str = ""
    """Who owns it."""
    price_per_hour: Annotated[float | None, Field(ge=0)] = None
    """Money for an hour of the whole job."""
    deadline: Duration | None = None
    """When it must be done, since the start of the test."""
    budget: BudgetFacts | None = None
    """The budget it draws on."""


class JobFacts(Facts):
    """The job, as it is when the test begins."""

    name: str = "job"
    """Its name."""
    namespace: str | None = None
    """Its namespace; without it that of the first policy that has one, else `default`."""
    age: Duration = timedelta(0)
    """How long before the start of the test it was created."""
    ran_before: Duration = timedelta(0)
    """How long its pods were ready in attempts before the test."""
    restarts: Annotated[int, Field(ge=0)] = 0
    """Restarts before the test."""


class Change(Facts):
    """Facts that are others from a moment on; what is not given stays."""

    at: Duration
    """When, since the start of the test."""


class Executor(SpecModel):
    """What the executor, and for Notify the notifier, answer to what is requested: done at once, unless told here."""

    notify: Annotated[Answer, Field(alias="Notify")] = "Done"
    """Done, Failed, Refused, or none for no answer at all; the same for the others."""
    checkpoint: Annotated[Answer, Field(alias="Checkpoint")] = "Done"
    """To a Checkpoint."""
    suspend: Annotated[Answer, Field(alias="Suspend")] = "Done"
    """To a Suspend; when done, the run is suspended until its row says `restart`."""
    stop: Annotated[Answer, Field(alias="Stop")] = "Done"
    """To a Stop; when done, the run has ended."""
    delete: Annotated[Answer, Field(alias="Delete")] = "Done"
    """To a Delete; when done, the run has ended."""
    takes: Duration = timedelta(0)
    """How long after the request the answer comes."""


class Expectation(SpecModel):
    """What is expected of one rule, at a moment or over a stretch of time."""

    policy: str | None = None
    """Name of the policy; only needed when the rule's name is in several."""
    rule: str | None = None
    """Name of the rule; only needed when there are several."""
    at: Duration | None = None
    """The moment, since the start of the test; without it a stretch is looked at."""
    from_: Annotated[Duration | None, Field(alias="from")] = None
    """Begin of the stretch; without it the start of the test."""
    to: Duration | None = None
    """End of the stretch, with it; without it the end of the test."""
    selected: bool | None = None
    """Whether the policy is for the run: selector and match. Needs `at`."""
    when: Condition | None = None
    """What the condition gives: true, false or unknown; over a stretch: at every look in it."""
    reason: str | None = None
    """Why the condition is unknown, or the policy not for the run; `*` stands for anything. Needs `at`."""
    verdict: Annotated[Verdict | None, Field(strict=False)] = None
    """Inactive (also once resolved), Pending, Firing, Resolved or Unknown; over a stretch: after every look in it."""
    values: dict[str, Any] | None = None
    """Names and calls of the condition, and their values; numbers within 0.1 %, texts with `*`. Needs `at`."""
    message: str | None = None
    """The sentence that the rule would say; `*` stands for anything. Needs `at`."""
    actions: Annotated[tuple[ActionText, ...] | None, Field(strict=False)] = None
    """All actions begun in the newest firing, in order: `Suspend WouldAct`, or with its reason. Needs `at`."""
    told: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """All messages that people got about the rule so far, or in the stretch; `*` stands for anything."""
    fires: Annotated[int | None, Field(ge=0)] = None
    """How many times the rule begins to fire in the stretch, or so far."""
    resolves: Annotated[int | None, Field(ge=0)] = None
    """How many times it resolves."""

    @model_validator(mode="after")
    def _fits(self) -> Expectation:
        stretch = self.model_fields_set & {"from_", "to"}
        if self.at is not None and stretch:
            raise ValueError("at together with from or to; write at for a moment, from and to for a stretch")
        if self.from_ is not None and self.to is not None and self.to < self.from_:
            raise ValueError("a stretch whose end lies before its begin; write from before to")
        only = self.model_fields_set & {"reason", "values", "message", "actions", "selected"}
        if self.at is None and only:
            named = [name for name in type(self).model_fields if name in only]
            raise ValueError(f"{' and '.join(named)} without at; write at: 10m, say, the moment in which to look")
        if self.reason is not None and self.when not in (None, "unknown"):
            raise ValueError(f"reason together with when: {self.when}; only what is unknown has a reason")
        about = {"selected", "when", "reason", "verdict", "values", "message", "actions", "told", "fires", "resolves"}
        if not self.model_fields_set & about:
            raise ValueError("nothing that is expected; write for instance verdict: Firing")
        return self


class UnitTest(SpecModel):
    """One run, and what is expected of the policies about it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What the test shows, as a sentence."""
    every: Duration | None = None
    """Time between two places of a row; without it the file's."""
    look: Duration | None = None
    """How often conditions that change by time are looked at; without it the file's."""
    mode: Annotated[Mode | None, Field(strict=False)] = None
    """Audit or Enforce instead of what the policies say."""
    seed: int = 0
    """Of the noise that has no seed of its own."""
    start: Moment | None = None
    """The moment that all times count from; without it the file's."""
    length: Duration | None = None
    """How long the test goes on; without it to the end of its rows and expectations."""
    job: JobFacts | None = None
    """The job; what is not given is the file's."""
    changes: Annotated[tuple[Change, ...], Field(strict=False)] = ()
    """Facts that change on the way."""
    executor: Executor | None = None
    """What becomes of requested actions; without it the file's."""
    total_steps: Annotated[int | None, Field(ge=1)] = None
    """Steps that the training plans; without it, it does not say."""
    run: LifeRow | None = None
    """Steps, silences, suspensions and restarts; without it `1+1x*`: a step with each report."""
    epoch: NumberRow | None = None
    """Epochs done, as the training reports them."""
    series: dict[Annotated[str, Field(min_length=1, max_length=256)], NumberRow] = Field(default_factory=dict)
    """The metrics, by name; such as the policies read."""
    expect: Annotated[tuple[Expectation, ...], Field(strict=False, min_length=1)]
    """What is expected."""


class PolicyTests(SpecModel):
    """A test file."""

    policies: Annotated[tuple[str, ...], Field(strict=False, max_length=64)] = ()
    """Files of policies, from the folder of this file; these, or `presets`, are needed."""
    presets: Annotated[tuple[str, ...], Field(strict=False, max_length=64)] = ()
    """Names of built-in policies ([presets](presets.md)), judged as they are."""
    every: Duration = timedelta(minutes=1)
    """Time between two places of a row."""
    look: Duration | None = None
    """How often conditions that change by time alone are looked at; without it a tenth of `every`. Never below 1s."""
    start: Moment = _START
    """The moment that all times count from."""
    mode: Annotated[Mode | None, Field(strict=False)] = None
    """Audit or Enforce instead of what the policies say."""
    job: JobFacts = JobFacts()
    """The job of all tests."""
    executor: Executor = Executor()
    """What becomes of requested actions."""
    tests: Annotated[tuple[UnitTest, ...], Field(strict=False, min_length=1, max_length=1000)]
    """The tests."""

    @model_validator(mode="after")
    def _has_a_policy(self) -> PolicyTests:
        if not self.policies and not self.presets:
            raise ValueError("neither policies nor presets; name files in policies, or built-in ones in presets")
        return self

    @field_validator("tests")
    @classmethod
    def _names_differ(cls, tests: tuple[UnitTest, ...]) -> tuple[UnitTest, ...]:
        seen: set[str] = set()
        for test in tests:
            if test.name in seen:
                raise ValueError(f"two tests of the name {test.name!r}; give each its own")
            seen.add(test.name)
        return tests
