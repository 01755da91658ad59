"""The trace validator: what a recorded or invented trace of agent turns breaks, as coded issues.

This room imports the standard library alone, not even packhost's own rooms: `python -m packhost.trace
FILE…` runs wherever Python does, and other projects may copy the folder.
"""

from packhost.trace.check import Report, check, check_text
from packhost.trace.codes import CODES, Code, Severity
from packhost.trace.findings import Issue
from packhost.trace.model import TraceUnreadable
from packhost.trace.schema import KEYWORDS, check_schema

__all__ = [
    "CODES",
    "KEYWORDS",
    "Code",
    "Issue",
    "Report",
    "Severity",
    "TraceUnreadable",
    "check",
    "check_schema",
    "check_text",
]
