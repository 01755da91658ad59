"""What the official suite asks of a server under test: tools, resources and prompts that it knows by name.

Its tools are of a kind of its own, `fixture`, which the trusted pack `test` brings: each is a function here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from packhost.api import (
    Announce,
    CallContext,
    Changed,
    Content,
    Elicitation,
    Kind,
    NotFound,
    Provider,
    ToolFailed,
    hookimpl,
    obtain,
)

Arguments = dict[str, Any]
Fixture = Callable[[CallContext, Arguments], Awaitable[Any]]
FIXTURES: dict[str, Fixture] = {}
_told: list[Announce] = []


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _png() -> bytes:
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _wav() -> bytes:
    data = bytes([128] * 8)
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


IMAGE = base64.b64encode(_png()).decode()
SOUND = base64.b64encode(_wav()).decode()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image() -> dict[str, Any]:
    return {"type": "image", "data": IMAGE, "mimeType": "image/png"}


def _embedded(uri: str, mime: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}}


def _form(message: str, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def _sample(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": _text(text)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


STRING = {"type": "string"}
OK = {"type": "boolean"}
ROOTS = {"method": "roots/list", "params": {}}


def fixture(name: str) -> Callable[[Fixture], Fixture]:
    """The function of the tool `pack:name`."""

    def keep(function: Fixture) -> Fixture:
        FIXTURES[name] = function
        return function

    return keep


@fixture("test:greet")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return f"Hello, {arguments['name']}!"


@fixture("test:simple_text")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return "This is a simple text response for testing."


@fixture("test:image_content")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return Content((_image(),))


@fixture("test:audio_content")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return Content(({"type": "audio", "data": SOUND, "mimeType": "audio/wav"},))


@fixture("test:embedded_resource")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return Content(
        (_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."),)
    )


@fixture("test:multiple_content_types")
async def _(context: CallContext, arguments: Arguments) -> Any:
    held = _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return Content((_text("Multiple content types test:"), _image(), held))


@fixture("test:tool_with_logging")
async def _(context: CallContext, arguments: Arguments) -> Any:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.log("info", line)
        await asyncio.sleep(0.05)
    return "It logged three lines."


@fixture("test:logging_tool")
async def _(context: CallContext, arguments: Arguments) -> Any:
    await context.log("info", "a line that only those are told who asked for lines")
    return "It logged a line."


@fixture("test:tool_with_progress")
async def _(context: CallContext, arguments: Arguments) -> Any:
    for progress in (0, 50, 100):
        await context.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return "It got on."


@fixture("test:error_handling")
async def _(context: CallContext, arguments: Arguments) -> Any:
    raise ToolFailed("This tool intentionally returns an error for testing")


def _said(answer: Mapping[str, Any]) -> str:
    content = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    return " ".join(block.get("text", "") for block in blocks)


@fixture("test:sampling")
async def _(context: CallContext, arguments: Arguments) -> Any:
    answers = obtain(context, answer=_sample(arguments["prompt"]))
    return f"LLM response: {_said(answers['answer'])}"


@fixture("test:missing_capability")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return _said(obtain(context, answer=_sample("Is there a model?"))["answer"])


async def _elicited(context: CallContext, message: str, schema: Mapping[str, Any]) -> str:
    found = await context.elicit(Elicitation(message, schema))
    return f"action={found.action}, content={json.dumps(dict(found.content or {}))}"


@fixture("test:elicitation")
async def _(context: CallContext, arguments: Arguments) -> Any:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return f"User response: {await _elicited(context, arguments['message'], schema)}"


@fixture("test:streaming_elicitation")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return obtain(context, user_name=_form("What is your name?", name=STRING))["user_name"]["action"]


@fixture("test:elicitation_sep1034_defaults")
async def _(context: CallContext, arguments: Arguments) -> Any:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": fields}
    return f"Elicitation completed: {await _elicited(context, 'Take the defaults?', schema)}"


@fixture("test:elicitation_sep1330_enums")
async def _(context: CallContext, arguments: Arguments) -> Any:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in _words()]
    choices = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in _words()]
    names = ["Option One", "Option Two", "Option Three"]
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": choices}},
    }
    schema = {"type": "object", "properties": fields}
    return f"Elicitation completed: {await _elicited(context, 'Which ones?', schema)}"


def _words() -> list[tuple[int, str]]:
    return [(1, "First"), (2, "Second"), (3, "Third")]


@fixture("test:input_required_result_elicitation")
async def _(context: CallContext, arguments: Arguments) -> Any:
    answers = obtain(context, user_name=_form("What is your name?", name=STRING))
    return f"Hello, {answers['user_name'].get('content', {}).get('name', 'nobody')}!"


@fixture("test:input_required_result_sampling")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return _said(
        obtain(context, capital_question=_sample("What is the capital of France?"))["capital_question"]
    )


@fixture("test:input_required_result_list_roots")
async def _(context: CallContext, arguments: Arguments) -> Any:
    roots = obtain(context, client_roots=ROOTS)["client_roots"]["roots"]
    return ", ".join(root["uri"] for root in roots)


@fixture("test:input_required_result_request_state")
async def _(context: CallContext, arguments: Arguments) -> Any:
    obtain(context, confirm=_form("Please confirm", ok=OK))
    return "state-ok"


@fixture("test:input_required_result_tampered_state")
async def _(context: CallContext, arguments: Arguments) -> Any:
    obtain(context, confirm=_form("Please confirm", ok=OK))
    return "It was confirmed."


@fixture("test:input_required_result_multiple_inputs")
async def _(context: CallContext, arguments: Arguments) -> Any:
    answers = obtain(
        context,
        user_name=_form("What is your name?", name=STRING),
        greeting=_sample("Generate a greeting"),
        client_roots=ROOTS,
    )
    return f"{_said(answers['greeting'])}, {answers['user_name'].get('content', {}).get('name')}"


@fixture("test:input_required_result_multi_round")
async def _(context: CallContext, arguments: Arguments) -> Any:
    first = obtain(context, step1=_form("Step 1: What is your name?", name=STRING))
    second = obtain(context, step2=_form("Step 2: What is your favorite color?", color=STRING))
    return f"{first['step1'].get('content')} {second['step2'].get('content')}"


@fixture("test:input_required_result_capabilities")
async def _(context: CallContext, arguments: Arguments) -> Any:
    obtain(context, user_name=_form("What is your name?", name=STRING), greeting=_sample("Greet me"))
    return "It has both."


@fixture("test:trigger_tool_change")
async def _(context: CallContext, arguments: Arguments) -> Any:
    _told[-1](Changed("tools"))
    return "It was told."


@fixture("test:trigger_prompt_change")
async def _(context: CallContext, arguments: Arguments) -> Any:
    _told[-1](Changed("prompts"))
    return "It was told."


@fixture("test:trigger_resource_change")
async def _(context: CallContext, arguments: Arguments) -> Any:
    _told[-1](Changed("resource", "test://watched-resource"))
    return "It was told."


@fixture("test:structured")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return {"sum": 3}


@fixture("test:headers")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return arguments["region"]


@fixture("test:tool_with_task")
async def _(context: CallContext, arguments: Arguments) -> Any:
    answers = obtain(context, user_name=_form("What is your name?", name=STRING))
    await asyncio.sleep(1)
    return f"Hello, {answers['user_name'].get('content', {}).get('name', 'nobody')}!"


@fixture("json:schema_2020_12_tool")
async def _(context: CallContext, arguments: Arguments) -> Any:
    return json.dumps(arguments)


@fixture("slow:compute")
async def _(context: CallContext, arguments: Arguments) -> Any:
    await asyncio.sleep(float(arguments.get("seconds", 0)))
    return "computed"


@fixture("failing:job")
async def _(context: CallContext, arguments: Arguments) -> Any:
    await asyncio.sleep(1)
    raise ToolFailed("the job fails, as it is meant to")


@fixture("protocol:error_job")
async def _(context: CallContext, arguments: Arguments) -> Any:
    await asyncio.sleep(1)
    raise RuntimeError("the job breaks, as it is meant to")


@fixture("confirm:delete")
async def _(context: CallContext, arguments: Arguments) -> Any:
    schema = {"type": "object", "properties": {"confirm": OK}, "required": ["confirm"]}
    return await _elicited(context, "Delete it?", schema)


@fixture("multi:input")
async def _(context: CallContext, arguments: Arguments) -> Any:
    schema = {"type": "object", "properties": {"name": STRING, "confirm": OK}}
    both = await asyncio.gather(
        _elicited(context, "The first?", schema), _elicited(context, "The second?", schema)
    )
    return ", ".join(both)


class FixtureKind:
    """Runs a tool by its function here."""

    name = "fixture"

    def check(self, spec: Any, folder: Any = None) -> list[str]:
        return []

    def enforcement(self, tool: Any) -> Any:
        return "host"

    async def run(self, tool: Any, arguments: Arguments, context: CallContext) -> Any:
        return await FIXTURES[tool.id.canonical](context, arguments)

    async def preview(self, tool: Any, arguments: Arguments, context: CallContext) -> str:
        return ""

    async def close(self) -> None:
        return None


def _argument(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"the argument {name}", "required": True}


class Fixtures(Provider):
    """The resources and prompts."""

    async def resources(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain"},
            {"uri": "test://example-resource", "name": "example-resource", "mimeType": "text/plain"},
        ]

    async def templates(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        ]

    async def read(self, uri: str, context: CallContext) -> Mapping[str, Any]:
        if uri == "test://static-binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": IMAGE}]}
        if uri.startswith("test://template/"):
            id = uri.removeprefix("test://template/").removesuffix("/data")
            data = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
        texts = {
            "test://static-text": "This is the content of the static text resource.",
            "test://watched-resource": "It is watched.",
            "test://example-resource": "An example.",
        }
        if uri not in texts:
            raise NotFound(f"there is no resource `{uri}`")
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": texts[uri]}]}

    async def prompts(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"name": "simple_prompt", "description": "A prompt without arguments"},
            {
                "name": "prompt_with_arguments",
                "description": "A prompt with two arguments",
                "arguments": [_argument("arg1"), _argument("arg2")],
            },
            {
                "name": "prompt_with_embedded_resource",
                "description": "A prompt with a resource in it",
                "arguments": [_argument("resourceUri")],
            },
            {"name": "prompt_with_image", "description": "A prompt with an image in it"},
            {"name": "input_required_result_prompt", "description": "A prompt that wants something first"},
        ]

    async def prompt(
        self, name: str, arguments: Mapping[str, str], context: CallContext
    ) -> Mapping[str, Any]:
        said = [_text("This is a simple prompt for testing.")]
        if name == "prompt_with_arguments":
            one, two = arguments.get("arg1"), arguments.get("arg2")
            said = [_text(f"Prompt with arguments: arg1='{one}', arg2='{two}'")]
        elif name == "prompt_with_embedded_resource":
            held = _embedded(arguments["resourceUri"], "text/plain", "Embedded resource content for testing.")
            said = [held, _text("Please process the embedded resource above.")]
        elif name == "prompt_with_image":
            said = [_image(), _text("Please analyze the image above.")]
        elif name == "input_required_result_prompt":
            wanted = _form("What context should the prompt use?", context=STRING)
            answer = obtain(context, user_context=wanted)["user_context"]
            said = [_text(f"In the context of {answer.get('content', {}).get('context')}")]
        return {"messages": [{"role": "user", "content": block} for block in said]}

    async def complete(
        self,
        reference: Mapping[str, Any],
        argument: Mapping[str, str],
        given: Mapping[str, str],
        context: CallContext,
    ) -> Mapping[str, Any]:
        words = [word for word in ("paris", "park", "party") if word.startswith(argument["value"])]
        return {"values": words, "total": len(words), "hasMore": False}


@hookimpl
def packhost_kinds() -> Sequence[Kind]:
    return [FixtureKind()]


@hookimpl
def packhost_provider(announce: Announce) -> Provider:
    _told.append(announce)
    return Fixtures()
