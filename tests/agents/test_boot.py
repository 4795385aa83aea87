"""Facts of the boot, on machines with and without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.boot import BOOT_ID, read_boot_facts
from agents.errors import StartError


def test_this_boot(tmp_path: Path) -> None:
    uuid = tmp_path / "product_uuid"
    uuid.write_text("4C4C4544-0043-4A10-8056-B4C04F4A4A33\n")
    facts = read_boot_facts(product_uuid=uuid)
    assert facts.boot_id == BOOT_ID.read_text().strip()
    assert facts.machine_id == "4c4c4544-0043-4a10-8056-b4c04f4a4a33"
    assert facts.kernel_release == os.uname().release


@pytest.mark.parametrize("text", ["", "03000200-0400-0500-0006-000700080009", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"])
def test_uuid_that_its_maker_never_set_identifies_nothing(tmp_path: Path, text: str) -> None:
    uuid = tmp_path / "product_uuid"
    uuid.write_text(text)
    assert read_boot_facts(product_uuid=uuid).machine_id == ""
    assert read_boot_facts(product_uuid=tmp_path / "none").machine_id == ""


def test_without_a_boot_id_the_agent_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="boot id"):
        read_boot_facts(boot_id=tmp_path / "none")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(StartError, match="empty"):
        read_boot_facts(boot_id=tmp_path / "empty")
