"""What is known of a run and its rules, and why nothing more happens: the answer of `trainwarden explain`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from trainwarden.controller.cluster.console.matching import Candidate
from trainwarden.controller.cluster.console.reading import Object, ago, identity, items, length, moment, status_of, text
from trainwarden.policies.models import ClusterTrainingPolicy, Rule
from trainwarden.policies.wishes import OPT_OUT, SILENCE

__all__ = ["Explained", "ExplainedAction", "ExplainedPolicy", "ExplainedRule", "explain"]


class ExplainedAction(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a rule's ladder."""

    id: str
    type: str
    state: str
    """Empty while it is not due."""
    message: str
    time: datetime | None
    due_in: str = ""
    """How long until it is due, while it is not."""
    answerable: bool = False
    """It waits for `trainwarden approve` or `deny`."""


class ExplainedRule(msgspec.Struct, frozen=True, rename="camel"):
    """One rule, and where it stands."""

    name: str
    verdict: str
    severity: str
    since: datetime | None
    reason: str
    when: str
    """Its expression; empty when the policy may not be read."""
    holds_for: str
    """How long `when` must hold, where it must."""
    values: Mapping[str, str]
    """What the expression reads, as far as it is known, and its value now."""
    actions: tuple[ExplainedAction, ...]


class ExplainedPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A policy whose rules judge the run."""

    name: str
    mode: str
    rules: tuple[ExplainedRule, ...]


class Explained(msgspec.Struct, frozen=True, rename="camel"):
    """All of it."""

    job: str
    state: str
    policies: tuple[ExplainedPolicy, ...]
    not_for_it: Mapping[str, str]
    """Policies that do not judge the run, and why."""
    why: tuple[str, ...]
    """Why nothing happens, or nothing more."""
    unread: tuple[str, ...]
    """What the caller may not read, and so is not told."""
    time: datetime | None
    """When the status was written."""


def explain(
    run: Object, annotations: Mapping[str, str], policies: Sequence[Candidate], unread: Sequence[str], now: datetime
) -> Explained:
    """Explain a run.

    Args:
        run: Its TrainingRun.
        annotations: Of its TrainJob, which mute or opt out.
        policies: All that the caller may read.
        unread: What the caller may not read, in sentences.
        now: The time.
    """
    status = status_of(run)
    by_name = {each.name: each for each in policies}
    grouped: dict[str, list[ExplainedRule]] = {}
    modes: dict[str, str] = {}
    for standing in items(status, "rules"):
        policy = text(standing, "policy")
        modes[policy] = text(standing, "mode")
        grouped.setdefault(policy, []).append(_rule(standing, by_name.get(policy), status, run, now))
    judging = tuple(ExplainedPolicy(name, modes[name], tuple(rules)) for name, rules in grouped.items())
    others = {each.name: each.why_not or _unjudged(each) for each in policies if each.name not in grouped}
    return Explained(
        job=identity(run),
        state=text(status, "state") or "Unknown",
        policies=judging,
        not_for_it=others,
        why=tuple(_why(status, annotations, judging, policies, now)),
        unread=tuple(unread),
        time=moment(status, "time"),
    )


def _unjudged(candidate: Candidate) -> str:
    match = candidate.policy.spec.match if candidate.policy is not None else ""
    if match:
        return f"its labels fit, but its match is not true of the run, or not known: {match}"
    return "its labels fit, but the engine has not judged the run by it yet"


def _rule(standing: Object, candidate: Candidate | None, status: Object, run: Object, now: datetime) -> ExplainedRule:
    name = text(standing, "rule")
    rules = candidate.policy.spec.rules if candidate is not None and candidate.policy is not None else ()
    written = next((rule for rule in rules if rule.name == name), None)
    since = moment(standing, "since")
    given = standing.get("values")
    values = {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}
    return ExplainedRule(
        name=name,
        verdict=text(standing, "verdict"),
        severity=text(standing, "severity"),
        since=since,
        reason=text(standing, "reason"),
        when=written.when if written is not None else "",
        holds_for=length(written.for_) if written is not None and written.for_ else "",
        values=values or _values(written.when if written is not None else "", status, run, now),
        actions=tuple(_actions(standing, written, since, now)),
    )


def _actions(standing: Object, written: Rule | None, since: datetime | None, now: datetime) -> list[ExplainedAction]:
    found = []
    for index, action in enumerate(items(standing, "actions")):
        state, due = text(action, "state"), ""
        specs = written.actions if written is not None else ()
        fits = index < len(specs) and specs[index].type.value == text(action, "type")
        if not state and fits and since is not None and text(standing, "verdict") == "Firing":
            due = length(max(timedelta(0), since + specs[index].after - now))
        found.append(
            ExplainedAction(
                id=text(action, "id"),
                type=text(action, "type"),
                state=state,
                message=text(action, "message"),
                time=moment(action, "time"),
                due_in=due,
                answerable=state == "Waiting" and text(action, "reason") == "Approval",
            )
        )
    return found


_NAMES = re.compile(r"""\bmetrics(?:\.(\w+)|\[\s*["']([^"']+)["']\s*\])|\b((?:job|progress|checkpoint)\.\w+)""")
_CALLS = re.compile(r"""\b\w+\(\s*["']([^"']+)["']""")
_STATUS = {
    "progress.step": "step",
    "progress.totalSteps": "totalSteps",
    "progress.epoch": "epoch",
    "progress.percent": "progress",
    "progress.stepsPerSecond": "stepsPerSecond",
    "progress.eta": "eta",
    "progress.etaLow": "etaLow",
    "progress.etaHigh": "etaHigh",
    "job.phase": "state",
    "job.gpus": "gpus",
    "job.gpuHours": "gpuHours",
    "job.cost": "cost",
}


def _values(when: str, status: Object, run: Object, now: datetime) -> dict[str, str]:
    """What the expression reads and the status holds: names, and metrics that functions look at."""
    metrics = status.get("metrics") or {}
    values = {}
    for dotted, quoted, name in _NAMES.findall(when):
        if dotted or quoted:
            metric = dotted or quoted
            values[f'metrics["{metric}"]' if quoted else f"metrics.{metric}"] = _metric(metrics, metric)
        elif name in _STATUS:
            values[name] = text(status, _STATUS[name]) or "unknown"
        elif name == "checkpoint.step":
            values[name] = text(status.get("checkpoint") or {}, "step") or "none yet"
        elif name == "job.age":
            values[name] = ago(moment(run["metadata"], "creationTimestamp"), now)
    for metric in _CALLS.findall(when):
        if metric in metrics:
            values[metric] = _metric(metrics, metric)
    return values


def _metric(metrics: Mapping[str, object], name: str) -> str:
    return text(metrics, name) if name in metrics else "not reported"


def _why(
    status: Object,
    annotations: Mapping[str, str],
    policies: Sequence[ExplainedPolicy],
    candidates: Sequence[Candidate],
    now: datetime,
) -> list[str]:
    """Each reason why nothing happens, or nothing more, the most general first."""
    why = [f"a policy can't be used: {text({'': each}, '')}" for each in status.get("problems") or ()]
    if not status:
        return [*why, "trainwarden has not written anything about the run yet; look whether its operator runs"]
    state = text(status, "state")
    if state and state != "Running":
        why.append(f"the job is {state}, and rules ask about a run that goes on")
    why += [
        f"{text(condition, 'message')}, so what rules ask for may be unknown"
        for condition in items(status, "conditions")
        if state == "Running" and condition.get("type") == "Reporting" and condition.get("status") == "False"
    ]
    until = moment(annotations, SILENCE)
    if until is not None and until > now:
        why.append(
            f"the job is silenced for {length(until - now)} more: nothing is told or done{_overruling(candidates)}"
        )
    if str(annotations.get(OPT_OUT, "")).lower() == "true":
        why.append(
            f"its owner has opted out ({OPT_OUT}): policies only say what they would have done{_overruling(candidates)}"
        )
    if not policies:
        why.append("no policy is for this job" if candidates else "no policy judges this job")
    rules = [(f"{policy.name}/{rule.name}", policy.mode, rule) for policy in policies for rule in policy.rules]
    for name, mode, rule in rules:
        why += _why_rule(name, mode, rule, now)
    if rules and all(rule.verdict in ("Inactive", "Resolved") for _, _, rule in rules):
        why.append("no rule fires: what they ask for is not so now")
    return why


def _overruling(candidates: Sequence[Candidate]) -> str:
    """Which policies pass over the owner's wishes."""
    policies = [(each.name, each.policy) for each in candidates if each.policy is not None and not each.why_not]
    names = [
        name for name, policy in policies if isinstance(policy, ClusterTrainingPolicy) and policy.spec.overrules_owners
    ]
    return f", but {', '.join(names)} overrule{'s' if len(names) == 1 else ''} it" if names else ""


def _why_rule(name: str, mode: str, rule: ExplainedRule, now: datetime) -> list[str]:
    if rule.verdict == "Unknown":
        return [f"{name} has no value: {rule.reason or 'what it asks for is not known'}"]
    if rule.verdict == "Pending":
        held = f" for {ago(rule.since, now)}" if rule.since is not None else ""
        return [f"{name} holds{held}" + (f"; it fires once it has held for {rule.holds_for}" if rule.holds_for else "")]
    if rule.verdict != "Firing":
        return []
    why = []
    if mode == "Audit":
        why.append(f"{name} fires, but its policy is in Audit mode: it only says what would have been done")
    elif not rule.actions:
        why.append(f"{name} fires, but has no actions")
    for action in rule.actions:
        if action.state == "WouldAct":
            continue
        if not action.state:
            why.append(f"{action.type} of {name} is not due" + (f"; it is in {action.due_in}" if action.due_in else ""))
        elif action.state != "Done":
            why.append(f"{action.type} of {name} is {action.state}" + (f": {action.message}" if action.message else ""))
    return why
