"""JSON Lines: plain, W&B's history, verl's file logger, progress reports as on the wire; and lists in one JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.files import document, lines
from trainwarden.controller.histories.recording import HistoryError, NoHistoryError, Reading
from trainwarden.controller.histories.records import Record, RecordsRun, grouped
from trainwarden.controller.histories.values import flat, parse_json, short

__all__ = ["json_records", "jsonl_records", "recordings", "recordings_of_json"]

_OPEN = ("metrics", "nonfinite", "data", "values", "log", "logs", "scalars")
"""Keys under which records hold their values; they leave no trace in the names."""


def recordings(path: Path, reading: Reading) -> Iterator[RecordsRun]:
    """The runs of a file with one JSON object a line."""
    return grouped(path, jsonl_records, reading)


def recordings_of_json(path: Path, reading: Reading) -> Iterator[RecordsRun]:
    """The runs of a file that is one JSON value: a list of objects, or an object of lists of equal length."""
    return grouped(path, json_records, reading)


def jsonl_records(path: Path, reading: Reading) -> Iterator[Record]:
    """One record a line."""
    right = "one JSON object stands on each line"
    for number, line in lines(path, reading):
        try:
            value = parse_json(line)
        except ValueError as error:
            reading.malformed(path, number, f"{error}: {short(line.decode(errors='replace'))}", right)
            continue
        if not isinstance(value, dict):
            reading.malformed(path, number, f"a JSON {_kind(value)}", right)
            continue
        yield number, flat(value, open_=_OPEN)


def json_records(path: Path, reading: Reading) -> Iterator[Record]:
    """The records of one JSON value."""
    try:
        value = parse_json(document(path))
    except ValueError as error:
        raise HistoryError(str(path), str(error), "give JSON, or JSON Lines as .jsonl") from error
    if isinstance(value, dict):
        value = _rows_of_lists(value, path)
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(item, dict):
            yield f"[{index}]", flat(item, open_=_OPEN)
        else:
            reading.malformed(path, f"[{index}]", f"a JSON {_kind(item)}", "the list holds objects")


def _rows_of_lists(value: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """An object of lists, such as Keras' history, turned into a list of objects."""
    lists = {name: items for name, items in value.items() if isinstance(items, list)}
    sizes = {name: len(items) for name, items in lists.items()}
    if not lists or len(set(sizes.values())) != 1:
        if not lists:
            raise NoHistoryError(
                str(path), "an object with no list", "give a list of objects, or lists of equal length"
            )
        found = f"lists of {', '.join(f'{size} ({name})' for name, size in sizes.items())}"
        raise HistoryError(str(path), f"an object with {found}", "give a list of objects, or lists of equal length")
    return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]


def _kind(value: object) -> str:
    names = {list: "list", str: "text", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")
