"""`trainwarden jobs --watch`: the table that stays true, in a terminal as one picture, elsewhere a line per change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.output import look_for, plain, print_data
from trainwarden.controller.cluster.console.reaching import WATCH_SECONDS, Cluster, Object
from trainwarden.controller.cluster.console.reading import ago, clean
from trainwarden.controller.cluster.console.selectors import Selector
from trainwarden.controller.cluster.console.table import jobs_table

__all__ = ["watch_data", "watch_lines", "watch_picture"]

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before listing again
_MARGIN = 15  # seconds over a watch's length after which a silent API server counts as lost
_LEFT = 4  # lines of a terminal that are not for runs

Key = tuple[str, str]


class _Runs:
    """The runs as they are now."""

    def __init__(self, cluster: Cluster, labels: Selector) -> None:
        self._cluster, self._labels = cluster, labels
        self.known: dict[Key, Object] = {}
        self._broken: tuple[str, datetime] | None = None
        self._heard = datetime.now(UTC)

    def doubt(self, now: datetime) -> tuple[str, datetime] | None:
        """Why they may be old, and since when."""
        if self._broken is None and now - self._heard > timedelta(seconds=WATCH_SECONDS + _MARGIN):
            return "nothing is heard of the API server", self._heard
        return self._broken

    def sorted(self) -> list[Object]:
        return [run for _, run in sorted(self.known.copy().items())]  # it is drawn by another thread

    def changes(self) -> Iterator[tuple[str, Object]]:
        """Changes, without an end; LISTED, without a run, when all were listed. Only the first listing may fail.

        Raises:
            ConsoleError: It can't be read at all.
        """
        first, failures = True, 0
        while True:
            try:
                version, changed = self._list()
                self._heard = datetime.now(UTC)
                yield from changed
                yield "LISTED", {}
                first, failures, self._broken = False, 0, None
                for event, run in self._cluster.watch_runs(version, self._labels):
                    self._heard = datetime.now(UTC)
                    if event == "DELETED":
                        self.known.pop(_key(run), None)
                    else:
                        self.known[_key(run)] = run
                    yield event, run
            except ConsoleError as error:
                if first or not error.passing:
                    raise
                if self._broken is None:
                    self._broken = (str(error), datetime.now(UTC))
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def _list(self) -> tuple[str, list[tuple[str, Object]]]:
        runs, version = self._cluster.runs(self._labels)
        old, new = self.known, {_key(run): run for run in runs}
        self.known = new
        gone = [("DELETED", run) for key, run in old.items() if key not in new]
        changed = [
            ("MODIFIED" if key in old else "ADDED", run)
            for key, run in new.items()
            if key not in old or _version(old[key]) != _version(run)
        ]
        return version, gone + changed


def watch_picture(cluster: Cluster, labels: Selector, console: Console, *, wide: bool, namespaces: bool) -> None:
    """Draw the table until Ctrl-C."""
    runs = _Runs(cluster, labels)
    changes = runs.changes()
    next(changes)  # what can't work at all is said before anything is drawn

    def picture() -> RenderableType:
        now, shown = datetime.now(UTC), runs.sorted()
        room = max(1, console.height - _LEFT)
        look = look_for(console, wide=wide, namespaces=namespaces)
        below = f"{len(shown)} run{'s' if len(shown) != 1 else ''}, {now:%H:%M:%SZ}; Ctrl-C ends"
        if len(shown) > room:
            below = f"{room} of {below}; -n or -l shows fewer"
        parts: list[RenderableType] = [jobs_table(shown[:room], now, look), Text(below, style="dim")]
        if (doubt := runs.doubt(now)) is not None:
            why, since = doubt
            parts.append(Text(f"old for {ago(since, now)}: {clean(why)}", style="bold red", no_wrap=True))
        return Group(*parts)

    with Live(get_renderable=picture, console=console, refresh_per_second=2, transient=False):
        for _ in changes:
            pass


def watch_lines(cluster: Cluster, labels: Selector, console: Console, *, wide: bool, namespaces: bool) -> None:
    """Print a line for each run, and one for each change of it, until Ctrl-C."""
    runs, headed = _Runs(cluster, labels), False
    for event, run in runs.changes():
        if event == "LISTED":
            continue
        shown = runs.sorted() if _key(run) in runs.known else [*runs.sorted(), run]
        look = look_for(console, wide=wide, namespaces=namespaces)
        with console.capture() as capture:  # all, so that the columns are as wide as they must be
            console.print(jobs_table(shown, datetime.now(UTC), look))
        head, *lines = capture.get().splitlines()
        if not headed:
            print(head.rstrip(), file=console.file)
            headed = True
        line = lines[[_key(each) for each in shown].index(_key(run))].rstrip()
        print(line + ("   (deleted)" if event == "DELETED" else ""), file=console.file, flush=True)


def watch_data(
    cluster: Cluster, labels: Selector, form: str, write: Callable[[object, str], None] = print_data
) -> None:
    """Print each object whenever it has changed, until Ctrl-C."""
    for event, run in _Runs(cluster, labels).changes():
        if event not in ("LISTED", "DELETED"):
            write(plain(run), form)


def _key(run: Object) -> Key:
    return str(run["metadata"].get("namespace", "")), str(run["metadata"]["name"])


def _version(run: Object) -> object:
    return run["metadata"].get("resourceVersion")
