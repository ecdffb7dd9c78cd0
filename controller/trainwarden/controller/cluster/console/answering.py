"""Which action of a run a person's answer is about. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.reading import Object, identity, items, status_of, text
from trainwarden.policies.training_run import APPROVE, DENY, RESUME

__all__ = ["Question", "check_answer", "check_resume", "question"]


@dataclass(frozen=True, slots=True)
class Question:
    """An action, and where it stands."""

    id: str
    type: str
    rule: str
    state: str
    message: str
    waits: bool  # for an approval

    def __str__(self) -> str:
        return f"{self.type} of {self.rule} ({self.id})"


def question(run: Object, wanted: str | None) -> Question:
    """The action that is meant.

    Args:
        run: The TrainingRun.
        wanted: Its id, the beginning of it, or its type such as `delete`; None for the only one that waits.

    Raises:
        ConsoleError: None waits, several do, or the named one does not.
    """
    known = _actions(run)
    waiting = [each for each in known if each.waits]
    if wanted is None:
        if len(waiting) == 1:
            return waiting[0]
        if not waiting:
            raise ConsoleError(f"nothing of {identity(run)} waits for an answer{_others(known)}")
        raise ConsoleError(f"{len(waiting)} actions of {identity(run)} wait; name one: {_listed(waiting)}")
    found = [each for each in known if each.id == wanted]
    found = found or [each for each in waiting if _named(each, wanted)] or [e for e in known if _named(e, wanted)]
    if not found:
        raise ConsoleError(f"{identity(run)} has no action {wanted!r}{_others(waiting or known)}")
    if len(found) > 1:
        raise ConsoleError(f"{wanted!r} names {len(found)} actions of {identity(run)}; name one: {_listed(found)}")
    if not found[0].waits:
        stands = f"is {found[0].state}" if found[0].state else "is not due yet"
        why = f": {found[0].message}" if found[0].message else ""
        raise ConsoleError(f"{found[0]} waits for no answer; it {stands}{why}")
    return found[0]


def check_answer(run: Object, annotation: str, action_id: str) -> bool:
    """Whether the same answer stands already.

    Raises:
        ConsoleError: Another answer was given and trainwarden has not taken it yet.
    """
    annotations = run["metadata"].get("annotations") or {}
    for name in (APPROVE, DENY):
        given = annotations.get(name)
        if given is not None and (name, given) != (annotation, action_id):
            raise ConsoleError(
                f"an answer was given before and is not taken yet ({name}={given}); "
                f"wait for it, or look whether trainwarden's operator runs"
            )
    return annotations.get(annotation) == action_id


def check_resume(run: Object) -> bool:
    """Whether a resume was asked for already.

    Raises:
        ConsoleError: The run is not one that trainwarden has suspended.
    """
    status = status_of(run)
    state, job = text(status, "state") or "Unknown", identity(run)
    if state not in ("Suspended", "Queued"):
        raise ConsoleError(f"{job} is {state}; only a suspended run is resumed")
    if not text(status, "suspendedBy"):
        namespace, name = job.split("/")
        patch = f"""kubectl -n {namespace} patch trainjob {name} --type merge -p '{{"spec":{{"suspend":false}}}}'"""
        queued = "it waits in its queue" if state == "Queued" else f"whoever suspended it resumes it: {patch}"
        raise ConsoleError(f"{job} was not suspended by trainwarden; {queued}")
    return RESUME in (run["metadata"].get("annotations") or {})


def _actions(run: Object) -> list[Question]:
    return [
        Question(
            id=text(action, "id"),
            type=text(action, "type"),
            rule=f"{text(rule, 'policy')}/{text(rule, 'rule')}",
            state=text(action, "state"),
            message=text(action, "message"),
            waits=text(action, "state") == "Waiting" and text(action, "reason") == "Approval",
        )
        for rule in items(status_of(run), "rules")
        for action in items(rule, "actions")
    ]


def _named(each: Question, wanted: str) -> bool:
    return each.type.lower() == wanted.lower() or (len(wanted) >= 3 and each.id.startswith(wanted))


def _listed(found: list[Question]) -> str:
    return ", ".join(map(str, found))


def _others(known: list[Question]) -> str:
    if not known:
        return "; no rule of it has begun an action"
    return "; its actions: " + ", ".join(f"{each} {each.state or 'not due yet'}" for each in known)
