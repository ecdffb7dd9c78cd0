"""The commands for a cluster, before they reach one: help, wrong input, and whose run `resume` means."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from click.testing import CliRunner, Result

from trainwarden.controller.cli import main

ROOT = Path(__file__).parents[3]
COMMANDS = ("jobs", "explain", "decisions", "approve", "deny", "resume", "silence")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, without runs and without a kubeconfig."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "TRAINWARDEN_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_reads_no_cluster_for_it(command: str) -> None:
    told = ran(command, "--help")

    assert told.exit_code == 0
    assert "--kubeconfig" in told.output
    assert "--context" in told.output


def test_help_loads_neither_lightkube_nor_rich() -> None:
    program = (
        "import sys\nfrom trainwarden.controller.cli import main\n"
        "main(['--help'], standalone_mode=False)\nmain(['jobs', '--help'], standalone_mode=False)\n"
        "print(sorted({'lightkube', 'httpx2', 'rich', 'pydantic', 'yaml'} & sys.modules.keys()), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["jobs", "-l", "a >"], "'a >' is no condition on a label"),
        (["silence", "job"], "give --for with a time such as 2h, or --end"),
        (["silence", "job", "--for", "2h", "--end"], "give --for with a time such as 2h, or --end"),
        (["silence", "job", "--for", "0s"], "give --for with a time such as 2h, or --end"),
        (["silence", "job", "--for", "2 hours"], "'2 hours' is not a duration"),
        (["approve", "a/b", "-n", "c"], "write the job's name, or NAMESPACE/NAME alone"),
        (["explain", "/b"], "write the job's name, or NAMESPACE/NAME alone"),
        (["resume", "-n", "team-a"], "name the job that is to be resumed in the cluster"),
    ],
)
def test_wrong_input_is_refused(here: Path, arguments: list[str], why: str) -> None:
    (here / "config").write_text(
        "{current-context: c, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [],"
        " contexts: [{name: c, context: {cluster: c}}]}"
    )
    done = ran(*arguments, "--kubeconfig", "config")

    assert done.exit_code == 2
    assert why in done.output


@pytest.mark.parametrize("command", [["jobs"], ["explain", "a"], ["decisions", "a"], ["approve", "a"], ["deny", "a"]])
def test_without_a_kubeconfig_it_is_said_where_one_was_looked_for(here: Path, command: list[str]) -> None:
    done = ran(*command)

    assert done.exit_code == 2
    assert done.output == (
        f"trainwarden: no kubeconfig at {here}/.kube/config; set KUBECONFIG, or give --kubeconfig FILE\n"
    )


def test_resume_is_for_a_run_of_this_machine_where_no_cluster_is_known(here: Path) -> None:
    for arguments in (["resume"], ["resume", "job"], ["resume", "job", "--force"]):
        done = ran(*arguments)

        assert done.exit_code == 2
        assert "runs belong to the folder that they were started in" in done.output


def test_resume_is_for_a_run_of_this_machine_where_its_name_is_known(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwarden.controller.local.workspace import Workspace

    folder, record = Workspace().create("job", namespace="local", command=["true"], folder=str(here))
    folder.release()
    monkeypatch.setenv("KUBECONFIG", str(here / "config"))
    (here / "config").write_text("{}")

    for name in ("job", f"job-{record.id}", record.id):
        done = subprocess.run(  # a process of its own, since it holds the run until it ends
            [sys.executable, "-m", "trainwarden.controller.cli", "resume", name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"job-{record.id} has no complete checkpoint" in done.stderr  # local mode's own answer
    assert "has no current context" in ran("resume", "other").output  # it asked the cluster
    assert "has no current context" in ran("resume", "job", "-n", "team-a").output
    assert "runs belong to the folder" in ran("resume", "other", "--force").output


def test_resume_with_a_cluster_takes_no_options_of_this_machine(here: Path) -> None:
    done = ran("resume", "job", "-n", "team-a", "--force", "--notify", "json://x")

    assert done.exit_code == 2
    assert "--force, --notify: for runs of this machine, not for a cluster's" in done.output


def test_kubectl_finds_it() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts["kubectl-trainwarden"] == "trainwarden.controller.cli:kubectl_main"


def test_a_pipe_that_nobody_reads_ends_it_quietly(here: Path) -> None:
    program = f"{sys.executable} -m trainwarden.controller.cli jobs --help | true"

    done = subprocess.run(["/bin/sh", "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ))

    assert done.stderr == ""
