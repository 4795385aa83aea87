"""Telling people, wherever they read."""

from adapters.notify.apprise_notifier import AppriseNotifier

__all__ = ["AppriseNotifier"]
