"""What a pack may import from packhost; everything else is packhost's own and may change.

A handler is `def handler(context: CallContext, arguments: dict)`, sync or async: it returns JSON
data or raises `ToolFailed`. Hooks are described in `packhost.hookspecs`.
"""

from packhost.errors import Code, Conflict, InvalidInput, NotFound, PackhostError, ScopeDenied, ToolFailed
from packhost.hookspecs import hookimpl
from packhost.kinds.awaits import await_calls, awaited, take_answers
from packhost.kinds.base import Kind, Located, Tool
from packhost.kinds.content import Content
from packhost.kinds.context import (
    CallContext,
    Connection,
    Elicitation,
    Elicited,
    HostServices,
    HttpReply,
    Manner,
    Message,
    OfferedTool,
    RunDriver,
    RunHandle,
    RunResult,
    RunStopped,
    RunView,
    SessionView,
    ToolOutcome,
)
from packhost.kinds.files import Files, FileStat, Walk
from packhost.kinds.http_tools import http_tool
from packhost.kinds.inputs import InputNeeded, obtain
from packhost.kinds.providing import Announce, Changed, Provider
from packhost.kinds.record import RecordedApproval, RecordedEvent, RecordedMessage, RunRecord, TraceWriter
from packhost.kinds.reply import FetchReply
from packhost.kinds.untrusted import envelope
from packhost.manifest.model import ToolSpec
from packhost.manifest.schemas import input_fault, schema_fault

__all__ = [
    "Announce",
    "CallContext",
    "Changed",
    "Code",
    "Conflict",
    "Connection",
    "Content",
    "Elicitation",
    "Elicited",
    "FetchReply",
    "FileStat",
    "Files",
    "HostServices",
    "HttpReply",
    "InputNeeded",
    "InvalidInput",
    "Kind",
    "Located",
    "Manner",
    "Message",
    "NotFound",
    "OfferedTool",
    "PackhostError",
    "Provider",
    "RecordedApproval",
    "RecordedEvent",
    "RecordedMessage",
    "RunDriver",
    "RunHandle",
    "RunRecord",
    "RunResult",
    "RunStopped",
    "RunView",
    "ScopeDenied",
    "SessionView",
    "Tool",
    "ToolFailed",
    "ToolOutcome",
    "ToolSpec",
    "TraceWriter",
    "Walk",
    "await_calls",
    "awaited",
    "envelope",
    "hookimpl",
    "http_tool",
    "input_fault",
    "obtain",
    "schema_fault",
    "take_answers",
]
