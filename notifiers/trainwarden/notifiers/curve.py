"""Draw a metric's curve as a PNG that reads well on a phone: the rule's window, when it fired, best point, checkpoint.

Drawn at twice the size and scaled down, for smooth lines. Colours are of Okabe and Ito's palette, which colour-blind
people can tell apart; each mark also has its own shape and label.
"""

from __future__ import annotations

import io
import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from trainwarden.notifiers import axis
from trainwarden.notifiers.wording import line as one_line
from trainwarden.policies.notice import Curve

__all__ = ["HEIGHT", "WIDTH", "evened", "render"]

WIDTH, HEIGHT = 1200, 600
_SCALE = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 130, 40, 128, 78  # margins around the plot, in pixels of the picture

_INK, _MUTED, _GRID, _PAPER = "#1b1b1f", "#5c5c66", "#e4e4ea", "#ffffff"
_LINE, _BAND, _WINDOW = "#0072b2", "#cfe3f1", "#fdf0d5"
_FIRED, _BEST, _SAVED = "#d55e00", "#007a5a", "#8a3f75"

_FEW = 3  # gaps between merged points, from which one is typical

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Point = tuple[int, float]
Row = tuple[int, float, float]


def render(curve: Curve, *, title: str = "", checkpoint_step: int | None = None) -> bytes:
    """A PNG of 1200 x 600 pixels.

    Args:
        curve: n >= 1 points in order of step; points that are not finite are left out.
        title: What the curve is of, shown before the metric's name.
        checkpoint_step: Marked on the axis of steps when it lies within the curve's steps.

    Raises:
        ValueError: No point is finite, or steps and values differ in length.
    """
    if len(curve.steps) != len(curve.values):
        raise ValueError(f"curve has {len(curve.steps)} steps and {len(curve.values)} values; they must be as many")
    points = [(s, v) for s, v in zip(curve.steps, curve.values, strict=True) if math.isfinite(v)]
    if not points:
        raise ValueError("curve has no finite value to draw")
    return _Picture(curve, points, title, checkpoint_step).png()


class _Picture:
    """One drawing; positions are in pixels of the scaled-up canvas."""

    def __init__(self, curve: Curve, points: Sequence[tuple[int, float]], title: str, checkpoint: int | None) -> None:
        self._curve, self._points, self._title, self._checkpoint = curve, points, title, checkpoint
        band = len(curve.lows) == len(curve.steps) == len(curve.highs)
        rows = zip(curve.steps, curve.lows, curve.highs, strict=True) if band else ()
        self._band = [row for row in rows if math.isfinite(row[1]) and math.isfinite(row[2])]
        self._line = points
        if len(self._band) == len(points):
            self._line, self._band = evened(points, self._band)
        values = [v for _, v in points]
        if len(self._band) < 200 * len(values):
            values += [v for row in self._band for v in row[1:]]
        first, last = points[0][0], points[-1][0]
        marks = [s for s in (curve.window_to, curve.fired_at) if s is not None and first <= s <= last + (last - first)]
        end = max([last, *marks])
        self._x = axis.linear(first, end + (end - first) // 50, whole=True)  # room for a mark at the end
        self._y = axis.for_values(values)
        self._image = Image.new("RGB", (WIDTH * _SCALE, HEIGHT * _SCALE), _PAPER)
        self._draw = ImageDraw.Draw(self._image)
        self._box = (_LEFT * _SCALE, _TOP * _SCALE, (WIDTH - _RIGHT) * _SCALE, (HEIGHT - _BOTTOM) * _SCALE)

    def png(self) -> bytes:
        self._shade_window()
        self._grid()
        self._lines()
        self._marks()
        self._heading()
        small = self._image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        small.save(out, "PNG", optimize=True)
        return out.getvalue()

    def _at(self, step: float, value: float) -> tuple[float, float]:
        left, top, right, bottom = self._box
        return left + self._x.place(step) * (right - left), bottom - self._y.place(value) * (bottom - top)

    def _column(self, step: float) -> float:
        left, _, right, _ = self._box
        return left + min(1.0, max(0.0, self._x.place(step))) * (right - left)

    def _shade_window(self) -> None:
        begin, end = self._curve.window_from, self._curve.window_to
        if begin is None or end is None or end < self._x.low or begin > self._x.high:
            return
        _, top, _, bottom = self._box
        left, right = self._column(begin), self._column(end)
        self._draw.rectangle((left, top, max(right, left + 4 * _SCALE), bottom), fill=_WINDOW)

    def _grid(self) -> None:
        left, _, right, bottom = self._box
        size = 24
        for value, label in self._y.ticks:
            _, y = self._at(self._x.low, value)
            self._draw.line((left, y, right, y), fill=_GRID, width=_SCALE)
            self._text((left - 12 * _SCALE, y), label, size, _MUTED, "rm")
        free = 0.0
        for step, label in self._x.ticks:
            x = self._column(step)
            self._draw.line((x, bottom, x, bottom + 6 * _SCALE), fill=_MUTED, width=_SCALE)
            half = _font(size * _SCALE).getlength(label) / 2
            middle = min(x, right - half)  # a label at the end stays below the axis
            if middle - half > free:
                self._text((middle, bottom + 12 * _SCALE), label, size, _MUTED, "mt")
                free = middle + half + 8 * _SCALE
        self._draw.line((left, bottom, right, bottom), fill=_MUTED, width=_SCALE * 2)
        self._text((right, (HEIGHT - 8) * _SCALE), "step", size, _MUTED, "rb")

    def _lines(self) -> None:
        if len(self._band) > 1:
            upper = [self._at(step, high) for step, _, high in self._band]
            lower = [self._at(step, low) for step, low, _ in reversed(self._band)]
            overlay = Image.new("L", self._image.size, 0)
            ImageDraw.Draw(overlay).polygon([*upper, *lower], fill=150)
            self._image.paste(_BAND, mask=overlay)
        places = [self._at(*point) for point in self._line]
        if len(places) > 1:
            self._draw.line(places, fill=_LINE, width=4 * _SCALE, joint="curve")
        if len(places) <= 30:
            for x, y in places:
                self._dot(x, y, 5, _LINE)

    def _marks(self) -> None:
        _, top, _, bottom = self._box
        if self._curve.fired_at is not None and self._x.low <= self._curve.fired_at <= self._x.high:
            x = self._column(self._curve.fired_at)
            for dash in range(top, bottom, 14 * _SCALE):
                self._draw.line((x, dash, x, min(dash + 8 * _SCALE, bottom)), fill=_FIRED, width=3 * _SCALE)
        best = next((point for point in self._points if point[0] == self._curve.best_step), None)
        if best is not None:
            x, y = self._at(*best)
            self._dot(x, y, 11, _PAPER)
            self._dot(x, y, 9, _BEST)
        if self._saved_shown():
            x, half = self._column(self._checkpoint or 0), 11 * _SCALE
            self._draw.polygon([(x - half, bottom), (x + half, bottom), (x, bottom - 2 * half)], fill=_SAVED)

    def _saved_shown(self) -> bool:
        return self._checkpoint is not None and self._x.low <= self._checkpoint <= self._x.high

    def _heading(self) -> None:
        name = " · ".join(part for part in (self._title, self._curve.metric) if part)
        name += " (log scale)" if self._y.log else ""
        self._text((36 * _SCALE, 22 * _SCALE), name, 34, _INK, "lt", limit=(WIDTH - 72) * _SCALE)
        legend = []
        if self._curve.window_from is not None and self._curve.window_to is not None:
            legend.append(("square", "#f0c36d", "rule's window"))
        if self._curve.fired_at is not None:
            legend.append(("dash", _FIRED, f"fired at step {self._curve.fired_at:,}"))
        if any(step == self._curve.best_step for step, _ in self._points):
            legend.append(("dot", _BEST, f"best, step {self._curve.best_step:,}"))
        if self._saved_shown():
            legend.append(("wedge", _SAVED, f"checkpoint, step {self._checkpoint:,}"))
        x, y = 36.0 * _SCALE, 92.0 * _SCALE
        for shape, colour, text in legend:
            half = 9 * _SCALE
            centre = x + half
            if shape == "square":
                self._draw.rectangle((x, y - half, x + 2 * half, y + half), fill=_WINDOW, outline=colour, width=_SCALE)
            elif shape == "dash":
                for part in (-1.0, 0.15):
                    self._draw.line((centre, y + part * half, centre, y + (part + 0.85) * half), colour, 3 * _SCALE)
            elif shape == "dot":
                self._dot(centre, y, 8, colour)
            else:
                self._draw.polygon([(x, y + half), (x + 2 * half, y + half), (centre, y - half)], fill=colour)
            width = self._text((x + 26 * _SCALE, y), text, 23, _INK, "lm")
            x += 26 * _SCALE + width + 30 * _SCALE

    def _dot(self, x: float, y: float, radius: int, colour: str) -> None:
        r = radius * _SCALE
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def _text(
        self, at: tuple[float, float], text: str, size: int, colour: str, anchor: str, limit: float = math.inf
    ) -> float:
        """Draw one line, shortened in its middle to `limit` pixels; returns its width."""
        font = _font(size * _SCALE)
        shown = _drawable(one_line(text, 300))
        whole = shown
        while len(whole) > 8 and font.getlength(shown) > limit:
            middle = len(whole) // 2
            whole = whole[: middle - 1] + whole[middle + 1 :]
            shown = whole[: len(whole) // 2] + "..." + whole[len(whole) // 2 :]
        self._draw.text(at, shown, font=font, fill=colour, anchor=anchor)
        return float(font.getlength(shown))


def evened(points: Sequence[Point], band: Sequence[Row]) -> tuple[list[Point], list[Row]]:
    """Merge the newest points, which are kept one by one, as the older ones are merged already.

    Else a curve would seem to grow noisy at its end.

    Args:
        points: Step and value, in order.
        band: Step, least and greatest value of each; equal ones where a point is a single value.
    """
    merged = [step for step, low, high in band if high > low]
    gaps = sorted(after - before for before, after in pairwise(merged))
    if len(gaps) < _FEW:
        return list(points), list(band)
    typical = gaps[len(gaps) // 2]
    line: list[Point] = []
    rows: list[Row] = []
    end = len(points)
    while end:  # from the newest, so that a group with few points is not the last one
        begin = end - 1
        while begin and points[end - 1][0] - points[begin - 1][0] < typical:
            begin -= 1
        group, last = range(begin, end), points[end - 1][0]
        line.append((last, sum(points[i][1] / len(group) for i in group)))
        rows.append((last, min(band[i][1] for i in group), max(band[i][2] for i in group)))
        end = begin
    return line[::-1], rows[::-1]


@lru_cache(maxsize=16)
def _font(size: int) -> _Font:
    """DejaVu Sans where the system has it (Latin, Greek, Cyrillic), else Pillow's own font (ASCII)."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


@lru_cache(maxsize=4096)
def _known(character: str) -> bool:
    """Whether the font has the character: what it lacks looks like a code point that nothing has."""
    if character == " ":
        return True
    font = _font(32)
    have, lack = font.getmask(character), font.getmask("\uffff")
    return have.size != lack.size or bytes(have) != bytes(lack)


def _drawable(text: str) -> str:
    """The text with characters that the font lacks put as their base letters, else as `?`."""
    shown = []
    for character in text:
        if _known(character):
            shown.append(character)
            continue
        base = unicodedata.normalize("NFKD", character)
        shown.append("".join(c for c in base if not unicodedata.combining(c) and c.isascii()) or "?")
    return "".join(shown)
