"""A conversation's messages in the form that the session's history keeps, whatever the provider.

A message is `{role, content, native?}`. Content blocks: `{type: text, text}`,
`{type: tool_call, id, name, input}` (assistant) and `{type: tool_result, tool_use_id, content,
is_error}` (user). `native` is the provider's own content, kept to be sent back unmodified to the
model that said it: its member `profile` names the profile and the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import InvalidInput

Message = dict[str, Any]
NAMED = "assistant_message_id"
"""The member by which a request, or a run's state, names the message that the run ends with."""


def normalised(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A caller's messages with a plain string as one text block; nothing else is changed or kept."""
    return [
        {"role": m["role"], "content": _blocks(m["content"]), **({"id": m["id"]} if "id" in m else {})}
        for m in messages
    ]


def names_in(history: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of those messages of a history that have one."""
    return {message["id"] for message in history if "id" in message}


def check_name(
    name: str | None, history: Sequence[Mapping[str, Any]], added: Sequence[Mapping[str, Any]]
) -> None:
    """Raise `InvalidInput` where a run's last message is to have the name of another."""
    if name is not None and name in names_in(history) | names_in(added):
        raise InvalidInput(
            f"the session has a message `{name}` already", path=f"/{NAMED}", hint="give each its own name"
        )


def unknown(
    history: Sequence[Mapping[str, Any]], added: Sequence[Message]
) -> tuple[list[Message], list[int]]:
    """Those of a caller's messages that the history does not hold by their names yet, and their places.

    Raises `InvalidInput` where nothing of it is left to answer.
    """
    known, fresh, places = names_in(history), list[Message](), list[int]()
    for place, message in enumerate(added):
        if message.get("id") not in known:
            fresh.append(message)
            places.append(place)
            known |= {message["id"]} if "id" in message else set()
    if added and not fresh and history[-1]["role"] != "user":
        raise InvalidInput(
            "the session holds every one of these messages already",
            path="/messages",
            hint="add the user's next one, or read what came of the run that brought them",
        )
    return fresh, places


def _blocks(content: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [dict(block) for block in content]


def result_block(tool_use_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    """The result of one call, as the next user message holds it."""
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": text, "is_error": is_error}


def marked(message: Message, profile: str) -> Message:
    """The message with the profile that its native content is bound to."""
    if "native" in message:
        message["native"]["profile"] = profile
    return message


def as_seen_by(message: Message, profile: str) -> Message:
    """A message of the history as one model is sent it; the history itself stays as it is.

    Another model's native content is left out, its thinking with it: that is bound to the model that
    said it, and a provider refuses or ignores what it did not sign. Text and calls remain.
    """
    native = message.get("native")
    if native is None or native.get("profile", profile) == profile:
        return message
    return {name: value for name, value in message.items() if name != "native"}


def open_calls(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids that the last message of a history asks for, in order; empty when it asks for nothing."""
    return _asked(history[-1]) if history else []


def check_continuation(
    history: Sequence[Mapping[str, Any]],
    added: Sequence[Mapping[str, Any]],
    places: Sequence[int] | None = None,
) -> None:
    """Hold a caller's messages to what a provider can continue from.

    Every call is answered once, in the very next message, results first; the last message is the
    user's. Raises `InvalidInput` whose `path` is the offending message, at its place among all that came.
    """
    awaited, places = open_calls(history), range(len(added)) if places is None else places
    for index, message in zip(places, added, strict=True):
        path = f"/messages/{index}"
        if message["role"] == "assistant":
            if awaited:
                raise _unanswered(awaited, path)
            if any(block["type"] == "tool_result" for block in message["content"]):
                raise InvalidInput("a tool result stands in an assistant message", path=path, hint=_RESULTS)
        else:
            _check_results(awaited, message, path)
        awaited = _asked(message)
        if len(set(awaited)) != len(awaited):
            raise InvalidInput(
                "two calls of one message have the same id", path=path, hint="give each its own"
            )
    if added and added[-1]["role"] != "user":
        raise InvalidInput(
            "the last message is not the user's",
            path=f"/messages/{places[-1]}",
            hint="end with a message of role `user`",
        )


_RESULTS = "answer each call by one `tool_result` at the start of the user message that follows it"


def _asked(message: Mapping[str, Any]) -> list[str]:
    if message["role"] != "assistant":
        return []
    return [block["id"] for block in message["content"] if block["type"] == "tool_call"]


def _check_results(awaited: list[str], message: Mapping[str, Any], path: str) -> None:
    blocks = message["content"]
    given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if any(block["type"] == "tool_call" for block in blocks):
        raise InvalidInput("a tool call stands in a user message", path=path, hint="only an assistant asks")
    if len(set(given)) != len(given):
        raise InvalidInput("a call has two results in one message", path=path, hint=_RESULTS)
    if strange := [one for one in given if one not in awaited]:
        message_text = f"the result `{strange[0]}` answers no call of the message before it"
        raise InvalidInput(message_text, path=path, hint=_RESULTS)
    if missing := [one for one in awaited if one not in given]:
        raise _unanswered(missing, path)
    if any(block["type"] != "tool_result" for block in blocks[: len(given)]):
        raise InvalidInput("a tool result stands after other content", path=path, hint=_RESULTS)


def _unanswered(ids: Sequence[str], path: str) -> InvalidInput:
    named = ", ".join(f"`{one}`" for one in ids)
    hint = f"{_RESULTS}; for one that will not run give a result with `is_error: true`"
    return InvalidInput(f"no result is given for the requested calls {named}", path=path, hint=hint)
