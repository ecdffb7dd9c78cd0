"""Which runs are kept and can be resumed, and what a person types for it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.controller.local.running import policy

from trainwarden.controller.cli import main
from trainwarden.controller.local.workspace import RecordState, RunFolder, RunRecord, Workspace, WorkspaceError
from trainwarden.policies.decision import Proof

PROOF = Proof(10, "/checkpoint", 1, "sha256:" + "0" * 64)


def made(workspace: Workspace, state: RecordState, checkpoint: Proof | None = None, name: str = "train") -> RunRecord:
    folder, record = workspace.create(name, namespace="local", command=["python"], folder=str(Path.cwd()))
    record.state, record.checkpoint = state, checkpoint
    (folder.policies / "00-p.yaml").write_text(policy("metric.loss > 2"))
    folder.save(record)
    folder.release()
    return record


@pytest.mark.parametrize("state", RecordState)
@pytest.mark.parametrize("checkpoint", [None, PROOF], ids=["no checkpoint", "a checkpoint"])
def test_what_can_be_resumed_is_kept_and_what_can_not_is_refused(
    state: RecordState, checkpoint: Proof | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace()
    record = made(workspace, state, checkpoint)
    made(workspace, state, checkpoint, "other")
    resumed = CliRunner().invoke(main, ["resume", "other"])
    for _ in range(22):
        made(workspace, RecordState.COMPLETE)

    kept = f"train-{record.id}" in {path.name for path in (workspace.home / "runs").iterdir()}

    assert kept is record.resumable
    assert resumed.exit_code == 2  # since neither the policy nor the checkpoint can be used
    refused = "nothing to resume" in resumed.stderr or "no complete checkpoint" in resumed.stderr
    assert refused is not record.resumable


@pytest.mark.parametrize("home", ["", "a home"], ids=["here", "in TRAINWARDEN_HOME"])
def test_the_command_that_is_told_finds_the_run_from_any_folder(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "with a blank"
    started.mkdir()
    monkeypatch.chdir(started)
    if home:
        monkeypatch.setenv("TRAINWARDEN_HOME", home)
    workspace = Workspace()
    record = made(workspace, RecordState.COMPLETE)
    command = RunFolder(workspace.home / "runs" / f"train-{record.id}").resume_command(record)
    monkeypatch.delenv("TRAINWARDEN_HOME", raising=False)
    monkeypatch.chdir(tmp_path)

    resumed = CliRunner().invoke(main, shlex.split(command)[1:])

    assert f"train-{record.id} is complete; there is nothing to resume" in resumed.stderr


def test_a_run_that_is_not_here_says_that_runs_belong_to_a_folder(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="the folder that they were started in: give that one with --dir"):
        Workspace(tmp_path).find("train-3f9a0c")
    made(Workspace(tmp_path), RecordState.SUSPENDED)
    with pytest.raises(WorkspaceError, match=r"known are train-.{6} \(suspended\); other runs belong to the folder"):
        Workspace(tmp_path).find("else")
