"""The vocabulary as Markdown tables, for docs/expressions.md."""

from __future__ import annotations

from trainwarden.policies.vocabulary import FUNCTIONS, VARIABLES, Function, Overload, Type

__all__ = ["vocabulary_tables"]


def vocabulary_tables() -> str:
    """Two tables, of the variables and of the functions over a run's history, each under a heading."""
    variables = [(f"`{variable.name}`", str(variable.type), variable.doc) for variable in VARIABLES]
    functions = [
        ("<br>".join(f"`{way}`" for way in _ways(function)), str(function.overloads[0].result), function.doc)
        for function in FUNCTIONS
    ]
    return "\n".join(
        [
            "### Variables",
            "",
            *_table(("name", "type", "meaning"), variables),
            "",
            "### Functions over the history",
            "",
            *_table(("call", "gives", "meaning"), functions),
        ]
    )


def _ways(function: Function) -> list[str]:
    """Each way to call a function; arguments that can be left out at the end stand in brackets."""
    known = {overload.parameters for overload in function.overloads}
    ways = []
    for overload in function.overloads:
        if overload.parameters[:-1] in known and overload.parameters[-1][1] is Type.STRING:
            continue  # told in brackets by the shorter one
        longer = next((p for p in known if p[:-1] == overload.parameters and p[-1][1] is Type.STRING), None)
        ways.append(_signature(function.name, overload, longer[-1][0] if longer else None))
    return ways


def _signature(name: str, overload: Overload, optional: str | None) -> str:
    required = ", ".join(f"{type_} {parameter}" for parameter, type_ in overload.parameters)
    return f"{name}({required}{f' [, string {optional}]' if optional else ''})"


def _table(head: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> list[str]:
    cells = [head, ("---", "---", "---"), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
