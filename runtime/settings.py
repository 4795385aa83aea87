"""Settings of each process, from the environment (``KINTSUGI_*``) and one TOML file.

The file is the first that exists of ``$KINTSUGI_CONFIG``, ``./kintsugi.toml`` and
``/etc/kintsugi/kintsugi.toml``; each process reads its own table of it. The environment wins over the file.
Temporal's address, namespace, TLS and API key are not here: they come from ``temporalio.envconfig``, as in every
Temporal tool (``TEMPORAL_ADDRESS``, ``TEMPORAL_PROFILE`` …).
"""

from __future__ import annotations

import logging
import os
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

CONFIG_VARIABLE = "KINTSUGI_CONFIG"
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$"
"""Names of clusters, pools and nodes: what Kubernetes and Slurm both allow, and no slash (see workflow ids)."""


def _known_level(name: str) -> str:
    if name.upper() not in LOG_LEVELS:
        raise ValueError(f"{name!r} is none of {', '.join(LOG_LEVELS)}")
    return name.upper()


LOG_LEVELS = tuple(logging.getLevelName(number) for number in range(10, 60, 10))
LogLevel = Annotated[str, AfterValidator(_known_level)]


class SettingsError(Exception):
    """Settings that cannot be used; the text names each one and what is wrong with it."""


def config_file() -> Path | None:
    """Return the settings file in force, or None.

    Raises:
        SettingsError: ``$KINTSUGI_CONFIG`` names a file that does not exist.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise SettingsError(f"${CONFIG_VARIABLE} names {path}, which does not exist")
        return path
    candidates = (Path("kintsugi.toml"), Path("/etc/kintsugi/kintsugi.toml"))
    return next((path for path in candidates if path.is_file()), None)


class _ProcessSettings(BaseSettings):
    """Reads one table of the settings file below the environment."""

    table: ClassVar[str]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in the order of their precedence."""
        path = config_file()
        if path is None or cls.table not in tomllib.loads(path.read_text(encoding="utf-8")):
            return init_settings, env_settings
        try:
            file = TomlConfigSettingsSource(settings_cls, path, toml_table_header=(cls.table,))
        except KeyError:
            # A file for another process, such as a node's with its agent's table only.
            return init_settings, env_settings
        return init_settings, env_settings, file


class TlsFiles(BaseSettings):
    """PEM files for mutual TLS. Empty means no TLS, for loopback only.

    Attributes:
        ca: authority that signed the peers' certificates.
        cert: this process's certificate; an agent's carries its node name as CN or DNS name.
        key: its private key.
    """

    model_config = SettingsConfigDict(extra="forbid")

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @property
    def enabled(self) -> bool:
        """Whether mutual TLS is configured."""
        return self.ca is not None and self.cert is not None and self.key is not None


class AgentSettings(_ProcessSettings):
    """The node agent (table ``agent``, variables ``KINTSUGI_AGENT_*``).

    Attributes:
        gateway: ``host:port`` of the gateway.
        listen: ``host:port`` on which NodeOperations is served; port 0 picks a free one.
        advertise: ``host:port`` under which workers reach it, when it differs from ``listen``.
        state_dir: spool, position and operation journal; must survive restarts of the agent.
        kernel_log: the kernel's record device.
        accept_injected: act on kernel log records that a process wrote. For tests and drills only.
        nvml_interval_seconds: time between two looks at the GPUs, in seconds.
        probe_deadline_seconds: a driver call that takes longer is a finding, in seconds.
        driver: what carries out operations: ``none`` (inspect only).
        topology: labels of shared parts: ``rack``, ``leaf``, ``nvlink_domain``.
        allow_insecure: serve NodeOperations without TLS on an address other than loopback.
        callers: names (CN or DNS name) of the workers' certificates, which alone may ask for operations under
            TLS; none permits every certificate of the authority, the other nodes' agents included.
    """

    table = "agent"
    model_config = SettingsConfigDict(
        env_prefix="KINTSUGI_AGENT_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    cluster: str = Field("local", pattern=NAME_PATTERN)
    pool: str = Field("default", pattern=NAME_PATTERN)
    node: str = Field(default_factory=socket.gethostname, pattern=NAME_PATTERN)
    gateway: str = "127.0.0.1:7443"
    listen: str = "127.0.0.1:7444"
    advertise: str = ""
    state_dir: Path = Path("/var/lib/kintsugi/agent")
    kernel_log: Path = Path("/dev/kmsg")
    accept_injected: bool = False
    nvml_interval_seconds: float = Field(1.0, gt=0)
    probe_deadline_seconds: float = Field(10.0, gt=0)
    spool_max_bytes: int = Field(64 * 1024 * 1024, ge=64 * 1024)
    driver: str = "none"
    topology: dict[str, str] = {}
    allow_insecure: bool = False
    callers: tuple[str, ...] = ()
    tls: TlsFiles = TlsFiles()
    log_level: LogLevel = "INFO"
    log_json: bool = False


class GatewaySettings(_ProcessSettings):
    """The gateway (table ``gateway``, variables ``KINTSUGI_GATEWAY_*``).

    Attributes:
        name: of this gateway alone, and the same after a restart: by it, it finds the nodes that it saw before.
        listen: ``host:port`` for agents. An address other than loopback requires ``tls``.
        heartbeat_seconds: how often agents are asked to send a heartbeat, in seconds.
        silence_seconds: a connected node that is silent for longer is reported lost, in seconds.
        fault_rate_per_node: faults per second and node passed on at once; repeats beyond are counted and folded.
        max_message_bytes: largest message accepted from an agent, in bytes.
        metrics_listen: ``host:port`` for Prometheus; empty for none.
    """

    table = "gateway"
    model_config = SettingsConfigDict(
        env_prefix="KINTSUGI_GATEWAY_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    name: str = Field(default_factory=socket.gethostname, pattern=NAME_PATTERN)
    listen: str = "127.0.0.1:7443"
    heartbeat_seconds: float = Field(5.0, gt=0)
    silence_seconds: float = Field(15.0, gt=0)
    fault_rate_per_node: float = Field(20.0, gt=0)
    max_message_bytes: int = Field(256 * 1024, ge=16 * 1024)
    allow_insecure: bool = False
    metrics_listen: str = ""
    tls: TlsFiles = TlsFiles()
    log_level: LogLevel = "INFO"
    log_json: bool = False


class WorkerSettings(_ProcessSettings):
    """The worker (table ``worker``, variables ``KINTSUGI_WORKER_*``).

    Attributes:
        cluster: cluster whose activities this worker runs.
        policy: policy file; None means the built-in one, which only observes.
        ledger: SQLite file of the permanent record.
        scheduler: ``standalone`` (machines without a scheduler) or ``simulated``.
        simulator: ``host:port`` of the simulated cluster, with ``simulated``.
        notify_urls: where people are told, in Apprise's URL notation; none means the log only.
        shutdown_seconds: how long running activities may end by themselves at a stop, in seconds.
        metrics_listen: ``host:port`` for Prometheus; empty for none.
    """

    table = "worker"
    model_config = SettingsConfigDict(
        env_prefix="KINTSUGI_WORKER_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    cluster: str = Field("local", pattern=NAME_PATTERN)
    policy: Path | None = None
    ledger: Path = Path("/var/lib/kintsugi/ledger.db")
    scheduler: str = "standalone"
    simulator: str = ""
    notify_urls: tuple[SecretStr, ...] = ()
    shutdown_seconds: float = Field(5.0, ge=0)
    metrics_listen: str = ""
    tls: TlsFiles = TlsFiles()
    log_level: LogLevel = "INFO"
    log_json: bool = False

    @field_validator("scheduler")
    @classmethod
    def _known_scheduler(cls, value: str) -> str:
        if value not in ("standalone", "simulated"):
            raise ValueError("must be 'standalone' or 'simulated'")
        return value

    @model_validator(mode="after")
    def _simulator_is_named(self) -> WorkerSettings:
        if self.scheduler == "simulated" and not self.simulator:
            raise ValueError("with the scheduler 'simulated', simulator must name its host:port")
        return self


SettingsT = TypeVar("SettingsT", bound=_ProcessSettings)


def load(settings_class: type[SettingsT], **overrides: Any) -> SettingsT:
    """Return the settings of a process; ``overrides`` (from the command line) win, None counts as not given.

    Raises:
        SettingsError: naming each setting that is wrong, and where it can be set.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return settings_class(**given)
    except ValidationError as error:
        prefix = settings_class.model_config.get("env_prefix", "")
        lines = [
            f"  {'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_url=False)
        ]
        where = config_file()
        source = f"the table [{settings_class.table}] of {where}" if where else "the environment"
        raise SettingsError(
            "settings cannot be used:\n" + "\n".join(lines) + f"\nset {prefix}<NAME> or edit {source}"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config_file()} is no valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{config_file()} is no valid TOML: it is not UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{config_file()} cannot be read: {error.strerror}") from None
