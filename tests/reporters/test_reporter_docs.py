"""The examples in the reporter's pages run as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reporters.nats_server import Ear, NatsServer

from trainwarden.reporters import Recorder
from trainwarden.reporters.proof import measure

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if kind == language]


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=f"{page} {number}") for page in ("docs/reporter.md", "reporters/README.md")
     for number, text in enumerate(blocks(page, "python"))],
)  # fmt: skip
def test_an_example_runs_and_reports(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.bin").write_bytes(b"weights")
    names: dict[str, Any] = {}
    with Recorder() as recorder:
        exec(compile(text.replace("/out", str(tmp_path)), "example", "exec"), names)
    for test in [value for name, value in names.items() if name.startswith("test_")]:
        test(tmp_path)
        return

    assert recorder.reports[-1].phase == "done"


def test_the_loop_of_the_first_page_reports_each_step_once_it_is_done(tmp_path: Path) -> None:
    (text,) = [text for text in blocks("README.md", "python") if "Reporter(" in text]

    with Recorder() as recorder:
        exec(compile(text, "example", "exec"), {"train_step": lambda: 0.5})

    last = recorder.reports[-1]
    assert (last.step, last.total, last.phase) == (10_000, 10_000, "done")


async def test_the_reporter_that_is_a_nats_client_alone_is_heard(ear: Ear, job: NatsServer) -> None:
    (text,) = blocks("docs/wire.md", "python")

    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    reports = await ear.until(lambda heard: heard and heard[-1]["phase"] == "done")
    assert len(reports) == 102
    assert os.environ["TRAINWARDEN_JOB"] == "bert"


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("sha256sum"), reason="needs GNU's tools")
def test_the_digest_in_a_shell_is_the_digest(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("model.bin", "b/état.bin", "b.txt", "B"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    (text,) = [text for text in blocks("docs/wire.md", "sh") if "sha256sum" in text]

    done = subprocess.run(
        ["bash", "-c", text.replace("/out/checkpoint-121", str(tmp_path))], capture_output=True, text=True, check=True
    )

    assert f"sha256:{done.stdout.split()[0]}" == measure(tmp_path).digest
