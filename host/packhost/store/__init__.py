"""The durable state of a workspace: runs, calls, approvals, grants, sessions and the audit chain."""

from packhost.store.base import Reading, Store, Tx, Watch

__all__ = ["Reading", "Store", "Tx", "Watch"]
