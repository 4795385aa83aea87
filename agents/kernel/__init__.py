"""The kernel log: what a record is, and where records come from."""
