"""What the documents tell people to type exists, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from domain.policy import Action
from domain.repair import OverrideAction
from simulator.scenarios import SCENARIOS
from workflows import search_attributes

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"(?:(?<=`)|(?<=\$ )|(?<=bin/)|(?<=sudo ))kintsugi ([a-z][a-z-]+)")
TARGET = re.compile(r"(?:(?<=`)|(?<=\$ ))make ([a-z]+)")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
ADR = re.compile(r"^(\d{4})-[a-z0-9-]+\.md$")


@pytest.fixture(scope="session")
def documents(root: Path, project_files: tuple[Path, ...]) -> dict[str, str]:
    """Every Markdown file by its path."""
    return {str(path.relative_to(root)): path.read_text() for path in project_files if path.suffix == ".md"}


def test_every_command_exists(documents: dict[str, str]) -> None:
    from cli.application import app

    command = typer.main.get_command(app)
    known = set(getattr(command, "commands", {}))
    told = {(name, word) for name, text in documents.items() for word in TYPED.findall(text)}
    assert told
    wrong = sorted((name, word) for name, word in told if word not in known)
    assert not wrong


def test_every_make_target_exists(root: Path, documents: dict[str, str]) -> None:
    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    told = {(name, word) for name, text in documents.items() for word in TARGET.findall(text)}
    assert told
    assert not sorted((name, word) for name, word in told if word not in targets)


def test_every_link_leads_somewhere(root: Path, documents: dict[str, str]) -> None:
    broken = [
        f"{name}: {target}"
        for name, text in documents.items()
        for target in LINK.findall(FENCE.sub("", text))
        if not (root / name).parent.joinpath(target).exists()
    ]
    assert not broken


def test_the_readme_lists_every_scenario(documents: dict[str, str]) -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", documents["README.md"], re.MULTILINE)
    assert [name for name in listed if name in SCENARIOS] == list(SCENARIOS)


def test_the_policy_page_names_every_action(documents: dict[str, str]) -> None:
    missing = [action.value for action in Action if f"`{action.value}`" not in documents["docs/policy.md"]]
    assert not missing


def test_the_approvals_page_names_every_override(documents: dict[str, str]) -> None:
    page = documents["docs/approvals.md"]
    assert not [order.value for order in OverrideAction if f"`{order.value}`" not in page]


def test_search_attributes_to_create_by_hand_are_named(documents: dict[str, str]) -> None:
    page = documents["docs/operating.md"]
    assert not [key.name for key in search_attributes.ALL if f"`{key.name}`" not in page]


def test_decisions_are_numbered_without_gaps(documents: dict[str, str]) -> None:
    names = [Path(name).name for name in documents if name.startswith("docs/adr/")]
    numbers = sorted(int(match[1]) for name in names if (match := ADR.match(name)))
    assert numbers == list(range(1, len(numbers) + 1))
    for name, text in documents.items():
        match = ADR.match(Path(name).name)
        if match:
            assert text.startswith(f"# {match[1]}: "), name
            for part in ("## Context", "## Decision", "## Consequences", "## Alternatives"):
                assert part in text, f"{name} lacks {part}"


def test_policy_examples_in_the_page_load(documents: dict[str, str]) -> None:
    from adapters.policy_file import load_policy

    blocks = re.findall(r"^```yaml\n(.*?)^```$", documents["docs/policy.md"], re.MULTILINE | re.DOTALL)
    assert blocks
    load_policy("version: 1\n" + "\n".join(blocks), "docs/policy.md")
