"""What a gateway counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

_HAND_OVER_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class GatewayMetrics:
    """The gateway's metrics, in a registry of their own so that two gateways fit in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.connected = Gauge("kintsugi_gateway_connected_agents", "Agents with a stream", registry=self.registry)
        self.events = Counter(
            "kintsugi_gateway_events_handed_over",
            "Events that Temporal accepted",
            ["kind"],
            registry=self.registry,
        )
        self.batches = Counter(
            "kintsugi_gateway_batches_handed_over", "Signals that Temporal accepted", registry=self.registry
        )
        self.hand_over_failures = Counter(
            "kintsugi_gateway_hand_over_failures",
            "Signals that Temporal did not accept and that are tried again",
            registry=self.registry,
        )
        self.hand_over_seconds = Histogram(
            "kintsugi_gateway_hand_over_seconds",
            "Time from an event's arrival until Temporal accepted it",
            registry=self.registry,
            buckets=_HAND_OVER_BUCKETS,
        )
        self.waiting = Gauge(
            "kintsugi_gateway_events_waiting",
            "Events that Temporal has not accepted yet",
            registry=self.registry,
        )
        self.refused = Counter(
            "kintsugi_gateway_streams_refused",
            "Streams ended by the gateway",
            ["reason"],
            registry=self.registry,
        )
        self.repeated = Counter(
            "kintsugi_gateway_events_sent_again",
            "Events that came in twice and were dropped",
            registry=self.registry,
        )
        self.folded = Counter(
            "kintsugi_gateway_repeats_folded", "Repeats held back by the flood limit", registry=self.registry
        )
        self.lost = Counter("kintsugi_gateway_nodes_lost", "Nodes reported lost", registry=self.registry)

    def serve(self, host: str, port: int) -> None:
        """Serve them over HTTP on this address, from a thread; OSError when it cannot be bound."""
        start_http_server(port, addr=host, registry=self.registry)
