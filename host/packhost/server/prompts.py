"""Prompts and completions as MCP serves them, each through the gate."""

from __future__ import annotations

from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext

from packhost.kinds.providing import COMPLETE, GET, Provision
from packhost.server.beside import Beside, Offered, answer, marked, missing, page_of

_MOST: Final = 100
"""Completions that one answer may hold."""

Context = ServerRequestContext[Any, Any]


class Prompts:
    """The handlers of `prompts/*` and `completion/complete`."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    async def list(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """The prompts, each under `<pack>_<prompt>` as tools are."""
        caller, may = self._beside.caller(ctx), self._beside.may
        allowed = [
            one
            for one in await self._beside.listed("prompts")
            if may(caller, one.of.tools[GET], {"name": one.key, "arguments": {}})
        ]
        entries, cursor = page_of(allowed, params.cursor if params else None)
        return types.ListPromptsResult(prompts=[_named(one) for one in entries], next_cursor=cursor)

    async def get(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """A prompt, governed."""
        of, name = self._of(params.name, ctx)
        entry = await self._entry(of, name)
        if entry is None:
            raise missing("prompt", params.name, ctx)
        arguments = dict(params.arguments or {})
        outcome = await self._beside.call(ctx, params, of.tools[GET], {"name": name, "arguments": arguments})
        if isinstance(outcome, types.InputRequiredResult):
            return outcome
        found = answer(outcome, types.GetPromptResult, ctx)
        for message in found.messages:
            content = message.content
            if isinstance(content, types.TextContent):
                content.text = marked(content.text, of)
            elif isinstance(content, types.EmbeddedResource) and isinstance(
                content.resource, types.TextResourceContents
            ):
                content.resource.text = marked(content.resource.text, of)
        return found

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """How an argument of a prompt or of a template may go on, governed."""
        given = dict((params.context.arguments if params.context else None) or {})
        argument = {"name": params.argument.name, "value": params.argument.value}
        if isinstance(params.ref, types.PromptReference):
            of, name = self._of(params.ref.name, ctx)
            tool = of.tools[COMPLETE["prompts"]]
            ref = {"type": "ref/prompt", "name": name}
        else:
            templates = await self._beside.listed("templates")
            found = next((one.of for one in templates if one.key == params.ref.uri), None)
            found = found or await self._beside.owner(params.ref.uri)
            if found is None:
                raise missing("resource", params.ref.uri, ctx)
            tool = found.tools[COMPLETE["resources"]]
            ref = {"type": "ref/resource", "uri": params.ref.uri}
        arguments = {"ref": ref, "argument": argument, "given": given}
        outcome = await self._beside.call(ctx, params, tool, arguments)
        assert not isinstance(outcome, types.InputRequiredResult)
        values = outcome.value.get("values", ())
        total, more = outcome.value.get("total"), outcome.value.get("hasMore")
        if len(values) > _MOST:
            total, more = total or len(values), True
        completion = types.Completion(values=list(values[:_MOST]), total=total, has_more=more)
        return types.CompleteResult(completion=completion)

    def _of(self, wire: str, ctx: Context) -> tuple[Provision, str]:
        pack, _, name = wire.partition("_")
        of = self._beside.provision(pack, "prompts")
        if of is None or not name:
            raise missing("prompt", wire, ctx)
        return of, name

    async def _entry(self, of: Provision, name: str) -> Offered | None:
        listed = await self._beside.listed("prompts")
        return next((one for one in listed if one.of is of and one.key == name), None)


def _named(one: Offered) -> types.Prompt:
    data = {**one.data, "name": f"{one.of.pack.id}_{one.key}", "title": one.data.get("title") or one.key}
    return types.Prompt.model_validate(data)
