"""The permanent record in a SQLite file."""

from adapters.ledger.sqlite import SqliteLedger

__all__ = ["SqliteLedger"]
