"""Prints what a command found: tables and text for people, JSON and YAML for tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import msgspec
import yaml
from rich.console import Console, RenderableType

from trainwarden.controller.cluster.console.table import Look

__all__ = ["as_list", "console_for", "look_for", "plain", "print_data", "print_lines"]

_ENDLESS = 4096  # characters of a line that no terminal breaks


def console_for(stream: TextIO, *, endless: bool = False) -> Console:
    """A console; where no terminal is, or lines are to be endless, nothing is cut or broken by us."""
    width = _ENDLESS if endless or not stream.isatty() else None
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def look_for(console: Console, *, wide: bool = False, namespaces: bool = False) -> Look:
    """What the console can show."""
    encoding = (getattr(console.file, "encoding", "") or "ascii").lower().replace("-", "")
    return Look(width=console.width, blocks=encoding.startswith("utf"), wide=wide, namespaces=namespaces)


def print_lines(console: Console, *parts: RenderableType) -> None:
    """Print for people, without blanks at the ends of lines."""
    with console.capture() as capture:
        console.print(*parts, sep="\n")
    for line in capture.get().splitlines():
        print(line.rstrip(), file=console.file, flush=True)


def print_data(found: object, form: str, stream: TextIO | None = None) -> None:
    """Print for tools.

    Args:
        found: Plain values, or structs of ours.
        form: json or yaml.
        stream: Where to; standard output without one.
    """
    stream = stream if stream is not None else sys.stdout
    data = plain(found)
    if form == "yaml":
        written = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, explicit_start=isinstance(found, dict))
        stream.write(written)
    else:
        stream.write(json.dumps(data, indent=4, ensure_ascii=False) + "\n")
    stream.flush()


def as_list(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Objects in the list that kubectl gives."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [plain(i) for i in items]}


def plain(value: Any) -> Any:
    """Dicts, lists, texts and numbers alone."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return plain(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else value
