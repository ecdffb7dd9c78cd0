"""The layout that editable installs and static readers rely on."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_trainwarden_is_a_namespace_without_an_init_anywhere() -> None:
    assert list(ROOT.glob("*/trainwarden/__init__.py")) == []
