"""Write the files that are made from the code, or check that they are what the code makes.

`python -m tests.house.generate [--check]` (what `make generate` and `make generated` run).
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from trainwarden.policies.crd import crd_documents
from trainwarden.policies.unittests.field_docs import field_tables
from trainwarden.policies.vocabulary_docs import vocabulary_tables

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def between_markers(page: Path, text: str) -> str:
    """A page with what stands between its markers replaced."""
    before, found, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{page}: lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text.strip()}\n{END}{after}"


def generated() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    files = {ROOT / "deploy" / "crds" / name: text for name, text in crd_documents().items()}
    page = ROOT / "docs" / "expressions.md"
    files[page] = between_markers(page, vocabulary_tables())
    page = ROOT / "docs" / "policy-tests.md"
    files[page] = between_markers(page, field_tables())
    return files


def main(arguments: list[str]) -> int:
    """Write all, or with --check say what differs; 1 when something does."""
    differs = False
    for path, text in generated().items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        differs = True
        if "--check" in arguments:
            name = str(path.relative_to(ROOT))
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, "generated"))
        else:
            path.write_text(text, encoding="utf-8")
            print("wrote", path.relative_to(ROOT))
    if differs and "--check" in arguments:
        print("generated files differ; `make generate` writes them")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
