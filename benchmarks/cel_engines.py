"""Time of one evaluation on both CEL engines, side by side in one run, as ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from datetime import timedelta

from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.protocol import CelValue, Expression, UnknownValueError

RULES = {
    "one comparison": "metrics.loss > 2",
    "four clauses": "metrics.loss > 2.0 && progress.percent < 95.0 && job.gpus >= 4 && progress.step > 100",
    "a detector and a clause": 'plateau("loss", duration("2h")) && progress.percent < 95',
    "a computed ratio": 'metrics.loss / metrics["eval/loss"] > 0.5',
    "a comprehension over 8 metrics": 'metrics.exists(m, m.startsWith("x") && metrics[m] > 3.0)',
    "a message": '"no progress for " + human(progress.sinceBest)',
}
ROUNDS = 15
SECONDS = 0.02  # of one engine in one round


class CheapScope:
    """A run whose values cost next to nothing to read."""

    values: Mapping[str, CelValue] = {
        "progress.percent": 50.0,
        "job.gpus": 8,
        "progress.step": 200,
        "progress.sinceBest": timedelta(hours=2),
    }
    names = frozenset(["loss", "eval/loss", *(f"x{number}" for number in range(6))])

    def variable(self, name: str) -> CelValue:
        return self.values[name]

    def metric(self, name: str) -> float:
        return 2.5

    def metric_names(self) -> frozenset[str]:
        return self.names

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        return True


def micros(expression: Expression, scope: CheapScope) -> float:
    """Mean time of one evaluation in one short round, in microseconds."""
    evaluate = expression.evaluate
    own: dict[str, CelValue | UnknownValueError] = {}
    count, began = 0, time.perf_counter()
    while True:
        for _ in range(10):
            evaluate(scope, own)
        count += 10
        passed = time.perf_counter() - began
        if passed >= SECONDS:
            return passed / count * 1e6


def main() -> None:
    """Print the table."""
    scope = CheapScope()
    engines = [engine("cpp"), engine("python")]
    print("| rule | C++, µs | Python, µs | Python / C++ | against one C++ comparison |")
    print("| --- | ---: | ---: | ---: | ---: |")
    base = 0.0
    for name, source in RULES.items():
        pair = [each.compile(source, field=name, result=None, variables={}) for each in engines]
        rounds = [tuple(micros(expression, scope) for expression in pair) for _ in range(ROUNDS)]
        fast, plain = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(slow / quick for quick, slow in rounds)
        base = base or fast
        print(f"| {name} | {fast:.1f} | {plain:.0f} | {ratio:.0f} | {fast / base:.1f} |")


if __name__ == "__main__":
    main()
