"""Table tests of decisions: a YAML file of calls and what the gate is to say to each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, ValidationError

from packhost.errors import CODES, ConfigInvalid, Place
from packhost.gate.judge import Judgement
from packhost.manifest.problems import error_of
from packhost.manifest.validation import choice, explain_errors
from packhost.manifest.values import fault
from packhost.manifest.yaml import MAX_BYTES, read_yaml
from packhost.rules.autonomy import Level
from packhost.rules.policy import Verdict


def _known_code(code: str) -> str:
    if code not in CODES:
        raise fault(*choice(code, CODES, "a code of a refusal"))
    return code


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_MISTAKEN = ("TOOL_NOT_FOUND", "INVALID_INPUT")
"""Refusals of a call that could never be made: a misspelled case must not pass for a denial."""


class Case(_Model):
    """A call, and what is to be said to it."""

    name: str = Field(default="", description="What the case shows; the call itself if left out.")
    tool: str = Field(description="The tool, `pack:tool`.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    level: Level | None = Field(
        default=None, description="The session's level; the workspace's default if left out."
    )
    principal: str = Field(default="someone", description="Whom the caller acts for.")
    client: str = Field(default="test", description="The calling client's name.")
    expect: Verdict = Field(description="`allow`, `ask` or `deny`.")
    code: Annotated[str, AfterValidator(_known_code)] | None = Field(
        default=None, description="The refusal's code, of a `deny`."
    )
    rule: StrictInt | str | None = Field(
        default=None,
        description="What must have led to it: the line of a rule, `FILE:LINE`, or words of the reason.",
    )


class CaseFile(_Model):
    """A file of cases."""

    packhost: Literal[1] = Field(default=1, description="The version of this format.")
    cases: tuple[Case, ...] = Field(min_length=1, description="The cases.")


@dataclass(frozen=True, slots=True)
class PlacedCase:
    """A case and where it stands."""

    case: Case
    place: Place

    @property
    def title(self) -> str:
        """What the case is called."""
        return self.case.name or f"{self.case.tool} is {self.case.expect}"


def load_cases(path: Path) -> tuple[PlacedCase, ...]:
    """The cases in a file.

    Raises `ConfigInvalid` with a place, and every problem in `data["problems"]`.
    """
    try:
        with path.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    except OSError as error:
        why = (error.strerror or "it failed").lower()
        raise ConfigInvalid(f"the tests cannot be read: {why}", place=Place(str(path))) from None
    document = read_yaml(source, str(path), error=ConfigInvalid)
    if not isinstance(document.data, dict):
        raise ConfigInvalid(
            "a file of tests is a mapping of keys", place=document.place(), hint="start it with `cases:`"
        )
    try:
        found = CaseFile.model_validate(document.data)
    except ValidationError as error:
        raise error_of(
            ConfigInvalid, explain_errors(error, document, CaseFile, code="CONFIG_INVALID")
        ) from None
    return tuple(
        PlacedCase(case, document.place(("cases", number))) for number, case in enumerate(found.cases)
    )


def differences(case: Case, found: Judgement) -> tuple[tuple[str, str, str], ...]:
    """What was expected and what was said instead, as (what, expected, actual); empty when all holds."""
    differs: list[tuple[str, str, str]] = []
    if case.expect != found.verdict:
        differs.append(("verdict", case.expect, found.verdict))
    if case.code is not None and case.code != found.code:
        differs.append(("code", case.code, found.code or "none"))
    if case.code is None and found.code in _MISTAKEN:
        differs.append(("code", "a rule, scopes or the level", found.code))
    if case.rule is not None and not any(_is_about(case.rule, each) for each in _said(found)):
        differs.append(("rule", str(case.rule), "; ".join(map(str, found.grounds)) or "none"))
    return tuple(differs)


def _said(found: Judgement) -> tuple[tuple[str, Place | None], ...]:
    return tuple((ground.text, ground.place) for ground in found.grounds)


def _is_about(rule: int | str, said: tuple[str, Place | None]) -> bool:
    text, place = said
    if isinstance(rule, int):
        return place is not None and place.line == rule
    return rule in text or (place is not None and rule in (str(place), f"{place.file}:{place.line}"))
