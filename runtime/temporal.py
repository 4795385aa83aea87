"""The Temporal client, data converter and sandbox, in one place for client, worker and replayer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import temporalio.api.enums.v1
import temporalio.api.operatorservice.v1
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

from runtime.settings import SettingsError

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:7233"


def sandbox_runner() -> SandboxedWorkflowRunner:
    """Return the sandbox in which workflows run: an import that nobody declared is an error, not a slow reload."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_import_notification_policy(
            SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
            | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
        )
    )


async def connect(
    address: str | None = None, namespace: str | None = None, attempts: int | None = None, metrics_listen: str = ""
) -> Client:
    """Connect to Temporal as every Temporal tool does, waiting with back-off while it is away.

    Args:
        address: overrides the configured address.
        namespace: overrides the configured namespace.
        attempts: give up after so many tries; None waits for ever, saying so in the log.
        metrics_listen: ``host:port`` on which the SDK serves its metrics to Prometheus; empty for none. Watch
            ``temporal_num_pollers``: a worker without pollers works no more.

    Raises:
        ConnectionError: Temporal did not answer within the given attempts; the text says where it was looked for.
        SettingsError: the profile, or a file that it names, cannot be used.
    """
    try:
        config = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingsError(
            f"Temporal's settings cannot be used: {error}; see TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE and the other"
            " TEMPORAL_* variables"
        ) from None
    if address:
        config["target_host"] = address
    if namespace:
        config["namespace"] = namespace
    target = config.setdefault("target_host", DEFAULT_ADDRESS)
    runtime = _runtime(metrics_listen) if metrics_listen else None
    tried = 0
    while True:
        try:
            return await Client.connect(**config, data_converter=pydantic_data_converter, runtime=runtime)
        except (RuntimeError, RPCError) as error:
            tried += 1
            if attempts is not None and tried >= attempts:
                raise ConnectionError(
                    f"Temporal at {target} does not answer ({error}). Start it with `kintsugi up`, or set"
                    " TEMPORAL_ADDRESS to where it runs."
                ) from None
            delay = min(0.25 * 2 ** min(tried, 6), 10.0)
            log.warning("Temporal at %s does not answer, trying again in %.1f s: %s", target, delay, error)
            await asyncio.sleep(delay)


def _runtime(metrics_listen: str) -> Runtime:
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=metrics_listen)))
    except (RuntimeError, ValueError) as error:
        raise OSError(f"metrics cannot be served on {metrics_listen}: {error}") from None


async def ensure_search_attributes(client: Client, keys: Sequence[SearchAttributeKey[str]]) -> None:
    """Create the search attributes (keywords) that are missing in the client's namespace.

    Raises:
        RPCError: the server refused; on Temporal Cloud they must be created by an administrator.
    """
    keyword = temporalio.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    existing = await client.operator_service.list_search_attributes(
        temporalio.api.operatorservice.v1.ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = {key.name: keyword for key in keys if key.name not in existing.custom_attributes}
    if not missing:
        return
    try:
        await client.operator_service.add_search_attributes(
            temporalio.api.operatorservice.v1.AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes=missing
            )
        )
    except RPCError as error:
        # Another worker was quicker.
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
    log.info("created search attributes %s", ", ".join(missing))
