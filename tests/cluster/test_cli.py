"""The commands for a cluster, on a real API server, with an admin's rights and with less."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.generic_resource import create_namespaced_resource
from tests.cluster.world import World
from tests.controller.proxy import Proxy
from tools.cluster.kubectl import kubeconfig

from trainwarden.controller.cluster.console import reaching
from trainwarden.controller.cluster.console.errors import ConsoleError

TRAINWARDEN = Path(sys.executable).with_name("trainwarden")


class Shell:
    """A person's shell in a folder of their own, with a kubeconfig."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.environment = {
            "KUBECONFIG": str(config),
            "HOME": str(folder),
            "PATH": f"{TRAINWARDEN.parent}:{os.defpath}",
        }
        self.error = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(TRAINWARDEN), *arguments], capture_output=True, text=True, env=self.environment, cwd=self.folder,
            timeout=60, check=False,
        )  # fmt: skip
        self.error = done.stderr.strip()
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def shell(world: World, tmp_path: Path) -> Shell:
    """The cluster's admin."""
    return Shell(tmp_path, world.kubectl.config)


@pytest.fixture
def reader(world: World, tmp_path: Path) -> Shell:
    """Somebody who may only read TrainingRuns of the namespace."""
    rules = [{"apiGroups": ["trainwarden.dev"], "resources": ["trainingruns"], "verbs": ["get", "list", "watch"]}]
    return person(world, tmp_path, "reader", rules)


def person(world: World, folder: Path, name: str, rules: list[dict[str, Any]]) -> Shell:
    metadata = {"name": name, "namespace": world.namespace}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", **metadata}
    reference = {"apiGroup": rbac, "kind": "Role", "name": name}
    world.kubectl.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    )
    token = world.kubectl.run("create", "token", name, "-n", world.namespace).strip()
    admin = yaml.safe_load(world.kubectl.config.read_text())["clusters"][0]["cluster"]
    path = folder / f"{name}.kubeconfig"
    return Shell(
        folder, kubeconfig(path, server=admin["server"], authority=admin["certificate-authority-data"], token=token)
    )


def seen(world: World, name: str, labels: dict[str, str] | None = None, **status: Any) -> None:
    """A TrainingRun as the operator writes them; without a TrainJob, so that the operator leaves it alone."""
    metadata = {"name": name, "namespace": world.namespace, "labels": labels or {}}
    spec = {"trainJob": name, "uid": f"uid-of-{name}"}
    world.kubectl.apply(
        [{"apiVersion": "trainwarden.dev/v1alpha1", "kind": "TrainingRun", "metadata": metadata, "spec": spec}]
    )
    report(world, name, **status)


def report(world: World, name: str, **status: Any) -> None:
    patch = json.dumps({"status": {"state": "Running", **status}})
    world.kubectl.run(
        "patch", "trainingrun", name, "-n", world.namespace, "--subresource=status", "--type=merge", "-p", patch
    )


def rule(world: World, *actions: dict[str, Any], verdict: str = "Firing", mode: str = "Enforce") -> dict[str, Any]:
    name = {"policy": f"{world.namespace}/flat-loss", "rule": "flat"}
    since = (datetime.now(UTC) - timedelta(minutes=12)).isoformat(timespec="seconds")
    listed = [{**name, "reason": "", "message": "", "time": since, **each} for each in actions]
    return {**name, "mode": mode, "severity": "warning", "verdict": verdict, "since": since, "actions": listed}


WAITS = {
    "id": "d9f00b11",
    "type": "Delete",
    "state": "Waiting",
    "reason": "Approval",
    "message": "waits for an approval",
}


def trainjob(world: World, name: str, labels: dict[str, str] | None = None) -> None:
    """A suspended TrainJob; the operator makes its TrainingRun."""
    metadata = {"name": name, "namespace": world.namespace, "labels": labels or {}}
    spec = {"suspend": True, "runtimeRef": {"name": "host", "kind": "TrainingRuntime"}}
    world.kubectl.apply(
        [{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}]
    )


def test_jobs_are_listed_by_namespace_and_label_and_as_data(world: World, shell: Shell) -> None:
    seen(world, "bert", {"team": "nlp"}, progress="50 %", step=500, totalSteps=1000, eta="1h", loss="2.3", gpus=8)
    seen(world, "resnet", {"team": "vision"}, state="Suspended", suspendedBy="a1", progress="88 %")

    head, bert, resnet = shell("jobs", "-n", world.namespace).splitlines()

    assert head.split() == ["NAME", "PROGRESS", "STEP", "ETA", "LOSS", "STATE", "GPUS", "AGE", "ALERTS"]
    assert bert.split()[:8] == ["bert", "██████░░░░░░", "50%", "500/1000", "1h", "2.3", "Running", "8"]
    assert "Suspended by policy" in resnet
    assert "bert" not in shell("jobs", "-n", world.namespace, "-l", "team!=nlp")
    assert f"{world.namespace}   bert" in shell("jobs", "-A", "-l", "team in (nlp)")
    listed = json.loads(shell("jobs", "-n", world.namespace, "-o", "json"))
    assert (listed["kind"], [each["metadata"]["name"] for each in listed["items"]]) == ("List", ["bert", "resnet"])
    assert {each["kind"] for each in listed["items"]} == {"TrainingRun"}
    assert yaml.safe_load(shell("jobs", "-n", world.namespace, "-o", "yaml")) == listed
    assert "SAVED" in shell("jobs", "-n", world.namespace, "-o", "wide")


def test_no_jobs_is_said_and_is_no_failure(world: World, shell: Shell) -> None:
    assert shell("jobs", "-n", world.namespace) == ""
    assert shell.error == f"trainwarden: no runs in namespace {world.namespace}; -A looks in all"
    assert json.loads(shell("jobs", "-n", world.namespace, "-o", "json"))["items"] == []


def test_watching_prints_each_change_until_it_is_interrupted(world: World, shell: Shell) -> None:
    seen(world, "bert", progress="50 %")
    command = [str(TRAINWARDEN), "jobs", "-n", world.namespace, "--watch"]
    watching = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=shell.environment
    )
    assert watching.stdout is not None
    lines = [watching.stdout.readline(), watching.stdout.readline()]
    report(world, "bert", progress="75 %")
    lines.append(watching.stdout.readline())
    world.kubectl.run("delete", "trainingrun", "bert", "-n", world.namespace)
    lines.append(watching.stdout.readline())
    watching.send_signal(signal.SIGINT)
    rest, errors = watching.communicate(timeout=30)

    assert [line.split()[:3] for line in lines[1:3]] == [
        ["bert", "██████░░░░░░", "50%"],
        ["bert", "█████████░░░", "75%"],
    ]
    assert lines[3].rstrip().endswith("(deleted)")
    assert (watching.returncode, rest, errors) == (0, "", "")


def test_a_terminal_gets_a_picture_that_stays_true(world: World, shell: Shell) -> None:
    seen(world, "bert", progress="50 %")
    ours, theirs = pty.openpty()
    environment = {**shell.environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "24"}
    watching = subprocess.Popen(
        [str(TRAINWARDEN), "jobs", "-n", world.namespace, "-w"], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = ""
    for share in ("50", "75"):
        report(world, "bert", progress=f"{share} %")
        while f" {share}%" not in shown:
            shown += os.read(ours, 65536).decode(errors="replace")
    watching.send_signal(signal.SIGINT)

    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while data := os.read(ours, 65536):
            shown += data.decode(errors="replace")
    assert watching.wait(30) == 0
    assert "1 run, " in shown
    assert "Traceback" not in shown
    os.close(ours)


async def test_watching_goes_on_after_the_api_server_was_away(world: World, shell: Shell, tmp_path: Path) -> None:
    seen(world, "bert", progress="50 %")
    admin = yaml.safe_load(world.kubectl.config.read_text())
    async with Proxy(int(admin["clusters"][0]["cluster"]["server"].rpartition(":")[2])) as proxy:
        admin["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        (tmp_path / "proxied").write_text(yaml.safe_dump(admin))
        watching = await asyncio.create_subprocess_exec(
            TRAINWARDEN, "jobs", "-w", "-n", world.namespace, "--kubeconfig", tmp_path / "proxied",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shell.environment,
        )  # fmt: skip
        assert watching.stdout is not None
        await watching.stdout.readline()
        first = await watching.stdout.readline()
        proxy.shut()
        report(world, "bert", progress="75 %")
        await asyncio.sleep(2)
        await proxy.open()
        second = await watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, errors = await watching.communicate()

    assert (b"50%" in first, b"75%" in second) == (True, True)
    assert (watching.returncode, errors) == (0, b"")


def test_explain_tells_rules_policies_that_do_not_fit_and_why_nothing_happens(world: World, shell: Shell) -> None:
    when = 'plateau("loss", 400) && progress.percent < 95.0'
    world.policy("flat-loss", rules=[{"name": "flat", "when": when, "for": "10m"}])
    world.policy(
        "prod", selector={"matchLabels": {"tier": "prod"}}, rules=[{"name": "x", "when": "metrics.loss > 4.0"}]
    )
    seen(world, "bert", {"tier": "dev"}, progress="41 %", metrics={"loss": "4.6"}, rules=[rule(world, WAITS)])

    told = shell("explain", "bert", "-n", world.namespace)
    data = json.loads(shell("explain", f"{world.namespace}/bert", "-o", "json"))

    assert f"when  {when}  for 10m" in told
    assert "now   progress.percent = 41 %, loss = 4.6" in told
    assert f"- {world.namespace}/prod: it wants jobs with tier=prod; this one has tier=dev" in told
    assert f"Delete of {world.namespace}/flat-loss/flat is Waiting: waits for an approval" in data["why"]
    assert data["policies"][0]["rules"][0]["actions"][0]["answerable"] is True
    assert yaml.safe_load(shell("explain", "bert", "-n", world.namespace, "-o", "yaml"))["job"] == data["job"]


def test_decisions_are_listed_with_what_events_tell(world: World, shell: Shell) -> None:
    seen(world, "bert", rules=[rule(world, {**WAITS, "state": "Done", "message": "deleted"})])
    about = {"kind": "TrainJob", "namespace": world.namespace, "name": "bert", "uid": "uid-of-bert"}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "bert.1", "namespace": world.namespace},
        "involvedObject": about, "reason": "NotifyDone", "message": f"{world.namespace}/flat-loss/flat: told default",
        "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "trainwarden"},
    }  # fmt: skip
    world.kubectl.apply([event])

    entries = json.loads(shell("decisions", "bert", "-n", world.namespace, "-o", "json"))
    wide = shell("decisions", "bert", "-n", world.namespace, "-o", "wide")

    assert [(each["what"], each["state"]) for each in entries] == [
        ("Notify", "Done"),
        ("Firing", ""),
        ("Delete", "Done"),
    ]
    assert "d9f00b11" in wide


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_an_answer_is_set_on_the_run_and_trainwarden_takes_it(world: World, shell: Shell, command: str) -> None:
    seen(world, "bert", rules=[rule(world, WAITS)])
    cluster = reaching.connect(world.kubectl.config, None, world.namespace)
    _, version = cluster.runs()

    told = shell(command, "bert", "-n", world.namespace, "--wait", "20s")

    asked = f"Delete of {world.namespace}/flat-loss/flat (d9f00b11) for {world.namespace}/bert"
    assert told.strip().endswith(f"{asked}; trainwarden has taken it")
    with contextlib.closing(cluster.watch_runs(version)) as changes:
        for _, run in changes:
            if f"trainwarden.dev/{command}" in (run["metadata"].get("annotations") or {}):
                assert run["metadata"]["annotations"][f"trainwarden.dev/{command}"] == "d9f00b11"
                break
    cluster.close()


def test_an_answer_that_nothing_waits_for_is_refused(world: World, shell: Shell) -> None:
    seen(world, "bert")

    shell("approve", "bert", "-n", world.namespace, code=2)

    assert shell.error.startswith(f"trainwarden: nothing of {world.namespace}/bert waits for an answer")


def test_resume_asks_for_a_run_that_trainwarden_suspended(world: World, shell: Shell) -> None:
    seen(world, "ours", state="Suspended", suspendedBy="a1")
    seen(world, "theirs", state="Suspended")

    assert shell("resume", "ours", "-n", world.namespace, "--wait", "20s") == (
        f"asked to resume {world.namespace}/ours; trainwarden has taken it\n"
    )
    shell("resume", "theirs", "-n", world.namespace, code=2)
    assert "was not suspended by trainwarden" in shell.error
    shell("resume", f"{world.namespace}/ours", "--wait", "20s")  # not known here, so it is the cluster's
    assert "no run" in shell.error
    shell("resume", "ours", "-n", world.namespace, "--plain", code=2)
    assert "--plain: for runs of this machine, not for a cluster's" in shell.error


def test_silence_is_set_on_the_trainjob_and_ended(world: World, shell: Shell) -> None:
    trainjob(world, "quiet")

    told = shell("silence", "quiet", "-n", world.namespace, "--for", "2h")
    until = datetime.fromisoformat(
        world.get("trainjob", "quiet")["metadata"]["annotations"]["trainwarden.dev/silence-until"]
    )
    shell("silence", "quiet", "-n", world.namespace, "--end")

    assert told.startswith(f"{world.namespace}/quiet is silent until 20")
    assert timedelta(hours=1, minutes=55) < until - datetime.now(UTC) <= timedelta(hours=2)
    assert "trainwarden.dev/silence-until" not in world.get("trainjob", "quiet")["metadata"].get("annotations", {})


def test_a_job_that_is_not_there_names_the_nearest_and_other_namespaces(world: World, shell: Shell) -> None:
    seen(world, "bert-pretrain")
    trainjob(world, "quiet-job")

    shell("explain", "bert-pretain", "-n", world.namespace, code=2)
    assert shell.error == f"trainwarden: no TrainingRun {world.namespace}/bert-pretain; did you mean bert-pretrain?"
    own = f"of-{world.namespace}"  # a name that no other test's namespace has
    seen(world, own)
    shell("explain", own, "-n", "kube-public", code=2)
    assert shell.error.endswith(f"; there is one in {world.namespace}: add -n {world.namespace}")
    shell("silence", "quiet-jab", "-n", world.namespace, "--for", "1h", code=2)
    assert shell.error == f"trainwarden: no TrainJob {world.namespace}/quiet-jab; did you mean quiet-job?"


def test_a_reader_sees_runs_and_is_told_what_else_is_closed_to_them(world: World, reader: Shell) -> None:
    seen(world, "bert", rules=[rule(world, WAITS)])

    assert "bert" in reader("jobs", "-n", world.namespace)
    told = reader("explain", "bert", "-n", world.namespace)
    assert "Delete  Waiting" in told
    assert f"you may not list trainingpolicies in namespace {world.namespace}; ask your admin for the right" in told
    assert "you may not list clustertrainingpolicies; " in told
    assert "Firing" in reader("decisions", "bert", "-n", world.namespace)
    assert "you may not list events" in reader.error
    reader("approve", "bert", "-n", world.namespace, code=70)
    assert f"you may not patch trainingruns/bert in namespace {world.namespace}" in reader.error
    assert "the right to patch on trainingruns of trainwarden.dev" in reader.error
    reader("silence", "bert", "-n", world.namespace, "--for", "1h", code=70)
    assert "you may not get trainjobs/bert" in reader.error
    reader("jobs", "-A", code=70)
    assert "you may not list trainingruns in all namespaces" in reader.error


def test_patching_runs_and_reading_them_is_all_that_an_answer_needs(world: World, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["trainwarden.dev"], "resources": ["trainingruns"], "verbs": ["get", "patch"]}]
    shell = person(world, tmp_path, "answerer", rules)
    seen(world, "bert", rules=[rule(world, WAITS)])

    assert "approved Delete" in shell("approve", "bert", "delete", "-n", world.namespace, "--wait", "0s")


def test_kubectl_runs_it_as_a_plugin(world: World, shell: Shell, tmp_path: Path) -> None:
    seen(world, "bert")
    plugin = tmp_path / "kubectl-trainwarden"
    start = "from trainwarden.controller.cli import kubectl_main\nkubectl_main()\n"
    plugin.write_text(f"#!{sys.executable}\n{start}")
    plugin.chmod(0o755)
    environment = {**shell.environment, "PATH": f"{tmp_path}:{os.defpath}"}

    listed, helped = (
        subprocess.run(
            [world.kubectl.path, "trainwarden", *arguments], capture_output=True, text=True, env=environment, check=True
        ).stdout
        for arguments in (["jobs", "-n", world.namespace], ["jobs", "--help"])
    )

    assert "bert" in listed
    assert helped.startswith("Usage: kubectl trainwarden jobs")


def test_a_cluster_without_our_crds_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = create_namespaced_resource("absent.trainwarden.dev", "v1alpha1", "TrainingRun", "trainingruns")
    monkeypatch.setattr(reaching, "TrainingRun", absent)
    cluster = reaching.connect(world.kubectl.config, None, world.namespace)

    for ask in (lambda: cluster.runs(), lambda: cluster.run("bert")):
        with pytest.raises(
            ConsoleError, match=r"^trainwarden is not installed there: https://\S+ knows no trainingruns$"
        ):
            ask()
    cluster.close()


def test_a_wrong_login_and_a_server_that_is_away_are_told_apart(world: World, tmp_path: Path) -> None:
    admin = yaml.safe_load(world.kubectl.config.read_text())["clusters"][0]["cluster"]
    server, authority = admin["server"], admin["certificate-authority-data"]
    stranger = Shell(tmp_path, kubeconfig(tmp_path / "a", server=server, authority=authority, token="wrong"))
    away = Shell(tmp_path, kubeconfig(tmp_path / "b", server="https://127.0.0.1:1", authority=authority, token="x"))

    stranger("jobs", code=70)
    away("jobs", code=70)

    assert stranger.error == f"trainwarden: {server} does not know you; log in again, or give another --context"
    assert away.error.startswith("trainwarden: https://127.0.0.1:1 can't be reached: ")


def with_login(world: World, folder: Path, command: str) -> Path:
    """A kubeconfig whose token comes from a helper."""
    content = yaml.safe_load(world.kubectl.config.read_text())
    helper = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", command]}
    if not command:
        helper = {**helper, "command": "/nowhere/login", "args": []}
    content["users"][0]["user"] = {"exec": helper}
    path = folder / "login.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_login_helper_gives_the_token_and_its_failure_is_told(world: World, tmp_path: Path, reader: Shell) -> None:
    seen(world, "bert")
    token = world.kubectl.run("create", "token", "reader", "-n", world.namespace).strip()
    credential = json.dumps({"kind": "ExecCredential", "status": {"token": token}})

    good = Shell(tmp_path, with_login(world, tmp_path, f"echo '{credential}'"))
    assert "bert" in good("jobs", "-n", world.namespace)
    for command, why in (
        ("echo expired >&2; exit 3", "expired"),
        ("echo hello", "Expecting value"),
        ("", "/nowhere/login"),
    ):
        bad = Shell(tmp_path, with_login(world, tmp_path, command))
        bad("jobs", "-n", world.namespace, code=70)
        assert bad.error.startswith("trainwarden: the kubeconfig's login failed: ")
        assert why in bad.error


def test_a_kubeconfig_with_broken_certificates_is_told(world: World, tmp_path: Path) -> None:
    for field, value in (("certificate-authority-data", "AAAA"), ("certificate-authority", "/nowhere/ca.crt")):
        content = yaml.safe_load(world.kubectl.config.read_text())
        server = content["clusters"][0]["cluster"]["server"]
        content["clusters"][0]["cluster"] = {"server": server, field: value}
        path = tmp_path / "broken.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        shell = Shell(tmp_path, path)

        assert shell("jobs", code=2) == ""
        assert shell.error.startswith(f"trainwarden: context {content['current-context']!r} can't be used: ")
        assert "Traceback" not in shell.error


def test_many_runs_are_read_in_pages(world: World, shell: Shell) -> None:
    runs = [
        {
            "apiVersion": "trainwarden.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": f"run-{index:03}", "namespace": world.namespace},
            "spec": {"trainJob": f"run-{index:03}", "uid": str(index)},
        }
        for index in range(520)
    ]
    world.kubectl.run("create", "-f", "-", stdin=yaml.safe_dump_all(runs))

    assert len(shell("jobs", "-n", world.namespace).splitlines()) == 521
