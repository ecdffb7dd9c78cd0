"""What would be right instead of what people bring from other languages."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["FOREIGN_FUNCTIONS", "FOREIGN_NAMES", "misplaced"]

_NOT_FINITE = 'NaN and infinity are never compared: ask nonFinite("loss")'

FOREIGN_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("NaN", "nan", "NAN", "Infinity", "inf", "Inf", "INF"), _NOT_FINITE),
    **dict.fromkeys(("True", "TRUE", "yes"), "write true"),
    **dict.fromkeys(("False", "FALSE", "no"), "write false"),
    **dict.fromkeys(("None", "nil", "NULL"), 'a value that is missing is unknown; ask "loss" in metrics'),
    "not": "write ! for not",
    "step": "write progress.step",
}
"""Names of other languages to a remedy."""

FOREIGN_FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("isnan", "isNaN", "isNan", "is_nan", "isinf", "isInf", "isfinite", "isFinite"), _NOT_FINITE),
    **dict.fromkeys(("abs", "fabs"), "compare with both ends, such as x > 2 || x < -2"),
    **dict.fromkeys(("avg", "average"), 'write mean("loss", 500)'),
    "median": 'write quantile("loss", 500, 0.5)',
    **dict.fromkeys(("std", "stdev"), 'write stddev("loss", 500)'),
    "len": "write size(...)",
    "float": "write double(...)",
    "str": "write string(...)",
    "not": "write ! for not",
    **dict.fromkeys(("minutes", "hours", "seconds", "days"), 'write a duration as duration("10m")'),
}
"""Functions of other languages to a remedy."""

_LENGTH = re.compile(r"(?<![\w.\"'])(\d+)(ms|[smhd])\b")
_TEXT = re.compile(r""" "[^"]*" | '[^']*' """, re.VERBOSE)
_AT = (  # what stands where it can't, to a remedy
    (re.compile(r"and\b", re.IGNORECASE), "write && for and"),
    (re.compile(r"or\b", re.IGNORECASE), "write || for or"),
    (re.compile(r"&(?!&)"), "write && for and"),
    (re.compile(r"\|(?!\|)"), "write || for or"),
    (re.compile(r"[\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb`]"), "write straight quotes, \" or '"),
    (re.compile(r"\u2265"), "write >="),
    (re.compile(r"\u2264"), "write <="),
    (re.compile(r"\u2260"), "write !="),
    (re.compile(r"="), "compare with =="),
    (re.compile(r"is\b"), "compare with =="),
    (re.compile(r"%"), "write the number without %"),
)


def misplaced(line: str, column: int) -> str:
    """What would be right for what can't stand where the parser stopped; empty when that is not known.

    Args:
        line: The line of the expression.
        column: Where it stopped, from 1.
    """
    before, rest = line[: column - 1], line[column - 1 :]
    for length in _LENGTH.finditer(line):
        if length.start() <= column - 1 <= length.end():
            number, unit = int(length[1]), length[2]
            return (
                f'write a duration as duration("{number * 24}h")'
                if unit == "d"
                else (f'write a duration as duration("{length[0]}")')
            )
    if re.search(r"\bnot\s*\Z", before, re.IGNORECASE) or re.match(r"not\b", rest, re.IGNORECASE):
        return "write ! for not"
    if re.match(r"if\b", rest):
        return "write condition ? value : other"
    if re.search(r"<\s*\Z", before) and rest.startswith(">"):
        return "write !="
    if re.search(r"\d\s*%\s*\Z", before):
        return "write the number without %"
    if re.search(r"\bnot\s", re.sub(_TEXT, "", line)):
        return "write ! for not"
    return next((remedy for sign, remedy in _AT if sign.match(rest)), "")
