"""TRAINWARDEN_AUTO=1: the .pth file of the wheel attaches to transformers, and never breaks an import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = "import site, sys; site.addsitedir({site!r});"


def python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python whose site-packages hold the .pth file, and `folder` what it can import first."""
    site = folder / "site"
    site.mkdir()
    shutil.copy(ROOT / "reporters" / "trainwarden_reporters_auto.pth", site)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINWARDEN_")}
    return subprocess.run(
        [sys.executable, "-c", START.format(site=str(site)) + code],
        env={**kept, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("value", "loaded"), [("1", True), ("0", False), ("", False)])
def test_nothing_is_imported_without_the_variable(tmp_path: Path, value: str, loaded: bool) -> None:
    ended = python("print('trainwarden.reporters.autoload' in sys.modules)", tmp_path, TRAINWARDEN_AUTO=value)

    assert ended.stdout.strip() == str(loaded), ended.stderr


def test_neither_transformers_nor_torch_is_imported_by_it(tmp_path: Path) -> None:
    ended = python("print({'torch', 'transformers', 'nats'} & set(sys.modules))", tmp_path, TRAINWARDEN_AUTO="1")

    assert ended.stdout.strip() == "set()", ended.stderr


def stand_in(folder: Path, trainer: str) -> None:
    """A package `transformers` that is like none we know."""
    package = folder / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "trainer_callback.py").write_text(
        "class TrainerCallback: pass\nclass TrainerControl: pass\nclass TrainerState: pass\n"
    )
    (package / "trainer.py").write_text(trainer)


def test_the_callback_is_added_once_when_the_trainer_is_imported(tmp_path: Path) -> None:
    stand_in(tmp_path, "DEFAULT_CALLBACKS = ['flow']\n")
    ended = python(
        "import transformers.trainer as t, trainwarden.reporters.autoload as a; a.watch(); a.attach(t);"
        "print([getattr(each, '__name__', each) for each in t.DEFAULT_CALLBACKS])",
        tmp_path,
        TRAINWARDEN_AUTO="1",
    )

    assert ended.stdout.strip() == "['flow', 'AutomaticCallback']", ended.stderr


def test_a_version_that_can_not_be_attached_to_is_told_how_to_go_on(tmp_path: Path) -> None:
    stand_in(tmp_path, "class Trainer: pass\n")
    ended = python("import transformers.trainer; print(transformers.trainer.Trainer)", tmp_path, TRAINWARDEN_AUTO="1")

    assert "Trainer" in ended.stdout
    assert ended.stderr.count("TRAINWARDEN_AUTO=1 has no effect with this version of transformers") == 1
    assert "TrainwardenCallback()" in ended.stderr


@pytest.mark.parametrize(
    ("trainer", "error"),
    [("raise RuntimeError('broken')", "RuntimeError: broken"), ("import nothing_of_the_kind", "ModuleNotFoundError")],
)
def test_an_import_that_fails_fails_as_without_it(tmp_path: Path, trainer: str, error: str) -> None:
    stand_in(tmp_path, trainer)
    ended = python("import transformers.trainer", tmp_path, TRAINWARDEN_AUTO="1")

    assert ended.returncode == 1
    assert error in ended.stderr


def test_an_absent_transformers_is_absent(tmp_path: Path) -> None:
    ended = python(
        "sys.modules['transformers'] = None\n"
        "try:\n import transformers.trainer\n"
        "except ModuleNotFoundError: print('absent')",
        tmp_path,
        TRAINWARDEN_AUTO="1",
    )

    assert ended.stdout.strip() == "absent", ended.stderr
