"""The picture opens, marks what it should, and copes with any numbers and names."""

from __future__ import annotations

import io

import msgspec
import pytest
from PIL import Image

from trainwarden.notifiers import axis
from trainwarden.notifiers.curve import HEIGHT, WIDTH, evened, render
from trainwarden.policies.notice import Curve

PLAIN = Curve("loss", tuple(range(100)), tuple(3.0 - 0.02 * i for i in range(100)))


def opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def test_the_window_and_the_moment_of_firing_are_marked() -> None:
    marked = opened(render(msgspec.structs.replace(PLAIN, window_from=60, window_to=90, fired_at=90)))
    plain = opened(render(PLAIN))

    inside = (130 + int(0.75 * (WIDTH - 170)), 160)
    outside = (130 + int(0.3 * (WIDTH - 170)), 500)
    assert marked.size == (WIDTH, HEIGHT)
    assert marked.getpixel(inside) != plain.getpixel(inside)
    assert marked.getpixel(outside) == plain.getpixel(outside)


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ((5,), (1.0,)),
        ((0, 1), (0.0, 0.0)),
        ((0, 1, 2), (1e-320, 1e-318, 1e-300)),
        ((0, 1), (-1.7e308, 1.7e308)),
        ((0, 1, 2), (1e-9, 1.0, 1e300)),
        ((0, 10**15), (1e-9, 2e-9)),
        ((3, 3, 3), (1.0, 2.0, 3.0)),
        ((0, 1), (float("nan"), 2.0)),
        ((0, 1), (1e9, 1e9 + 1e-6)),
    ],
    ids=["one point", "constant zero", "denormal", "widest", "300 decades", "huge steps", "one step", "nan", "close"],
)
def test_any_numbers_can_be_drawn(steps: tuple[int, ...], values: tuple[float, ...]) -> None:
    assert opened(render(Curve("loss", steps, values))).size == (WIDTH, HEIGHT)


@pytest.mark.parametrize(
    "name", ["x" * 500, "потеря/損失/é", "\u202egnp\x00", ""], ids=["long", "scripts", "odd", "none"]
)
def test_any_name_can_be_drawn(name: str) -> None:
    assert opened(render(msgspec.structs.replace(PLAIN, metric=name), title="team/job")).size == (WIDTH, HEIGHT)


def test_a_curve_without_a_finite_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no finite value"):
        render(Curve("loss", (1,), (float("inf"),)))


def test_values_over_two_decades_are_drawn_on_a_log_scale() -> None:
    assert axis.for_values([0.01, 10.0]).log
    assert not axis.for_values([0.5, 10.0]).log
    assert not axis.for_values([0.0, 1000.0]).log


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 19_900), (12.3, 12.4), (-5, 5)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    ticks = axis.linear(low, high).ticks

    assert 3 <= len(ticks) <= 7
    assert all(low - 1e-9 <= value <= high + 1e-9 for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


def test_the_newest_points_are_merged_as_the_older_ones_are() -> None:
    old = [(100 * i, 2.0, 1.8, 2.2) for i in range(20)]  # of 100 steps each
    new = [(1900 + 5 * i, *[2.0 + (-1) ** i * 0.2] * 3) for i in range(1, 41)]  # one by one, up and down
    rows = [*old, *new]

    line, band = evened([(s, v) for s, v, _, _ in rows], [(s, low, high) for s, _, low, high in rows])

    assert [step for step, _ in line] == [*range(0, 2000, 100), 2000, 2100]
    assert all(value == pytest.approx(2.0, abs=0.02) for _, value in line)
    assert all((low, high) == pytest.approx((1.8, 2.2)) for _, low, high in band)


def test_a_curve_of_single_points_is_drawn_as_it_is() -> None:
    points = [(i, float(i % 3)) for i in range(100)]

    assert evened(points, [(s, v, v) for s, v in points])[0] == points


@pytest.mark.parametrize("last", [20_000, 100_000, 1_000_000, 123])
def test_no_label_sticks_out_of_the_picture_s_plot(last: int) -> None:
    image = opened(render(Curve("loss", (0, last), (1.0, 2.0))))

    margin = image.crop((WIDTH - 40 + 3, HEIGHT - 78 + 4, WIDTH, HEIGHT))
    assert min(margin.convert("L").tobytes()) >= 250
