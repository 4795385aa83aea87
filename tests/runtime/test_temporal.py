"""The Temporal client: where it looks, how long it waits, and what it says."""

from __future__ import annotations

import logging
import uuid

import pytest
import temporalio.api.operatorservice.v1
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from runtime import temporal
from tests.conftest import free_port


async def test_the_configured_address_is_used(temporal_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server)
    client = await temporal.connect(attempts=1)
    assert client.namespace == "default"
    assert (await client.count_workflows()).count >= 0


async def test_a_given_address_wins_over_the_configured_one(
    temporal_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    client = await temporal.connect(address=temporal_server, attempts=1)
    assert client.service_client.config.target_host == temporal_server


async def test_an_absent_temporal_is_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError) as caught:
        await temporal.connect(address=address, attempts=2)
    assert f"Temporal at {address} does not answer" in str(caught.value)
    assert "TEMPORAL_ADDRESS" in str(caught.value)
    assert "trying again" in caplog.text


async def test_missing_search_attributes_are_created_once(temporal_client: Client) -> None:
    name = f"Kintsugi{uuid.uuid4().hex[:8]}"
    key = SearchAttributeKey.for_keyword(name)
    await temporal.ensure_search_attributes(temporal_client, [key])
    await temporal.ensure_search_attributes(temporal_client, [key])
    existing = await temporal_client.operator_service.list_search_attributes(
        temporalio.api.operatorservice.v1.ListSearchAttributesRequest(namespace=temporal_client.namespace)
    )
    assert name in existing.custom_attributes
