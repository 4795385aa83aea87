"""The gateway's process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Callable
from typing import NoReturn

from temporalio.client import Client

from gateway.metrics import GatewayMetrics
from gateway.server import Gateway, check_exposure, check_silence, split_address
from gateway.temporal_sender import TemporalSender
from runtime import exits, logs, temporal
from runtime.settings import GatewaySettings, SettingsError, load

log = logging.getLogger(__name__)

_DESCRIPTION = """\
Takes the reports of node agents and hands them to Temporal.

Settings come from KINTSUGI_GATEWAY_* and the table [gateway] of kintsugi.toml; where Temporal is, from
TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and TEMPORAL_PROFILE, as for every Temporal tool.

SIGHUP has heartbeat_seconds and silence_seconds read again. SIGTERM stops it; no node is called lost for that.
"""

_EXAMPLES = """\
examples:
  kintsugi-gateway                                  listen on 127.0.0.1:7443, without TLS
  kintsugi-gateway --listen 127.0.0.1:0             on a free port; the log names it
  KINTSUGI_GATEWAY_TLS__CA=ca.pem KINTSUGI_GATEWAY_TLS__CERT=gateway.pem \\
  KINTSUGI_GATEWAY_TLS__KEY=gateway.key \\
    kintsugi-gateway --listen 0.0.0.0:7443          for a cluster: each agent's certificate names its node
"""


def main() -> NoReturn:
    """Run the gateway until SIGTERM or SIGINT and leave with its exit status."""
    arguments = _parser().parse_args()
    try:

        def read_settings() -> GatewaySettings:
            settings = load(
                GatewaySettings,
                listen=arguments.listen,
                metrics_listen=arguments.metrics_listen,
                log_level=arguments.log_level,
                log_json=arguments.log_json,
            )
            check_silence(settings)
            return settings

        settings = read_settings()
        logs.configure(settings.log_level, settings.log_json)
        asyncio.run(run(settings, read_settings))
    except (SettingsError, ValueError) as error:
        exits.complain(str(error))
        exits.leave(exits.USAGE)
    except KeyboardInterrupt:
        exits.leave(exits.INTERRUPTED)
    exits.leave(exits.OK)


async def run(settings: GatewaySettings, read_again: Callable[[], GatewaySettings] | None = None) -> None:
    """Serve until the process is asked to stop (SIGTERM, SIGINT).

    Args:
        settings: what to start with.
        read_again: called at SIGHUP; its heartbeat and silence limit then hold, for connected agents too.

    Raises:
        SettingsError: something in the settings cannot be used.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    check_exposure(settings)
    metrics = GatewayMetrics()
    _serve_metrics(metrics, settings.metrics_listen)
    connecting = asyncio.create_task(_connect(), name="connect to Temporal")
    gateway = Gateway(settings, TemporalSender(connecting), metrics)
    try:
        await gateway.start()
        gateway.expect(connecting)
        if read_again is not None:
            loop.add_signal_handler(signal.SIGHUP, _read_again, gateway, read_again)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({stopped, connecting}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            # Raises what cannot be mended by waiting, such as a profile that does not exist.
            connecting.result()
            await stopped
    finally:
        await gateway.stop()
        connecting.cancel()


def _read_again(gateway: Gateway, read: Callable[[], GatewaySettings]) -> None:
    try:
        gateway.change(read())
    except SettingsError as error:
        log.error("the settings in force stay: %s", error)
    else:
        log.info("read the settings again")


async def _connect() -> Client:
    client = await temporal.connect()
    log.info(
        "connected to Temporal",
        extra={"target": client.service_client.config.target_host, "namespace": client.namespace},
    )
    return client


def _serve_metrics(metrics: GatewayMetrics, listen: str) -> None:
    if not listen:
        return
    host, port = split_address(listen, "metrics_listen")
    try:
        metrics.serve(host, port)
    except OSError as error:
        raise SettingsError(f"cannot serve metrics on {listen} (metrics_listen): {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kintsugi-gateway",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where agents connect; port 0 picks a free one")
    parser.add_argument("--metrics-listen", metavar="HOST:PORT", help="where Prometheus reads metrics")
    parser.add_argument("--log-level", metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR")
    parser.add_argument("--log-json", action="store_true", default=None, help="one JSON object a log line")
    return parser


if __name__ == "__main__":
    main()
