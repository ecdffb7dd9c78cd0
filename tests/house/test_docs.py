"""What the docs show works: policies pass, Python compiles, links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden.policies.compiling import compile_policy
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.loading import load_policies

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if found[1] == language:
                line = page.read_text(encoding="utf-8")[: found.start()].count("\n") + 1
                yield f"{page.relative_to(ROOT)}:{line}", found[2]


POLICIES = {
    place: text
    for place, text in blocks("yaml")
    if "kind: TrainingPolicy" in text or "kind: ClusterTrainingPolicy" in text
}
POLICIES |= {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("examples/**/*policy*.yaml")}


@pytest.mark.parametrize("which", ["cpp", "python"])
@pytest.mark.parametrize("place", POLICIES)
def test_every_policy_in_docs_and_examples_is_valid_on_both_engines(place: str, which: str) -> None:
    loaded = load_policies(POLICIES[place], source=place)

    assert [str(problem) for problem in loaded.problems] == []
    assert loaded.policies
    for policy in loaded.policies:
        compile_policy(policy, engine("cpp" if which == "cpp" else "python"))


@pytest.mark.parametrize(("place", "text"), list(blocks("python")), ids=[place for place, _ in blocks("python")])
def test_every_python_example_in_the_docs_compiles(place: str, text: str) -> None:
    compile(text, place, "exec")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_in_the_docs_leads_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []
