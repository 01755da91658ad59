"""How long one decision takes over 1,000 rules, beside `cedarpy` and `pycasbin` on the same rules in one run.

    python tests/benchmarks/policy.py [--rules 1000] [--seconds 1.0] [--json]

The other engines come with the extra `bench`; what is missing is said and left out. Every engine answers the
same questions, and a run in which two of them disagree fails. The exit code is 1 when packhost's median is
over 50 µs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packhost.names import ToolId
from packhost.rules.arguments import parse_argument_match
from packhost.rules.policy import Facts, Policy, Rule

LIMIT = 50.0
"""Microseconds that packhost's median decision may take."""
TOOLS, FOLDERS, PEOPLE = 20, 60, ("ann", "bob", "eve")
QUESTIONS = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One rule in the words that all engines have: who, with what tool, below which folder, may not."""

    principal: str
    tool: str
    folder: str

    def meets(self, question: Question) -> bool:
        return (
            self.principal == question.principal
            and self.tool == question.tool
            and question.path.startswith(f"{self.folder}/")
        )


@dataclass(frozen=True, slots=True)
class Question:
    """One call to decide about."""

    principal: str
    tool: str
    path: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one engine took, in microseconds, and how often it denied."""

    engine: str
    median: float
    p99: float
    denied: int


Decide = Callable[[Question], bool]
"""Whether a call is denied."""


def made(count: int) -> tuple[list[Line], list[Question]]:
    """Rules and questions; a third of the questions meets a rule."""
    chance = random.Random(7)
    lines = [
        Line(
            chance.choice(PEOPLE),
            f"t{chance.randrange(TOOLS)}",
            f"src/d{chance.randrange(FOLDERS)}/r{number}",
        )
        for number in range(count)
    ]
    questions = []
    for number in range(QUESTIONS):
        line = chance.choice(lines)
        if number % 3:
            questions.append(Question(line.principal, line.tool, f"src/d{number % FOLDERS}/x{number}/a.py"))
        else:
            questions.append(Question(line.principal, line.tool, f"{line.folder}/deep/a.py"))
    return lines, questions


def ours(lines: Sequence[Line]) -> Decide:
    """packhost: the rules as a workspace writes them."""
    rules = [
        Rule(
            "deny",
            tool=f"pack:{line.tool}",
            principal=line.principal,
            arguments=(parse_argument_match("path", f"{line.folder}/**"),),
        )
        for line in lines
    ]
    policy = Policy(rules)

    def decide(question: Question) -> bool:
        facts = Facts(
            ToolId("pack", question.tool),
            "python",
            "write",
            question.principal,
            "bench",
            {"path": question.path},
        )
        return policy.decide(facts, "guarded").verdict == "deny"

    return decide


def cedar(lines: Sequence[Line]) -> Decide:
    """Cedar: a `forbid` a rule beside one `permit`."""
    import cedarpy

    policies = "permit(principal, action, resource);\n" + "\n".join(
        f'forbid(principal == User::"{line.principal}", action == Action::"{line.tool}", resource) '
        f'when {{ context.path like "{line.folder}/*" }};'
        for line in lines
    )
    # Parsed once: what is measured is deciding.
    known, entities = cedarpy.PolicySet.from_str(policies), cedarpy.Entities.from_json_str("[]")

    def decide(question: Question) -> bool:
        request = {
            "principal": f'User::"{question.principal}"',
            "action": f'Action::"{question.tool}"',
            "resource": 'File::"any"',
            "context": {"path": question.path},
        }
        answer = cedarpy.is_authorized(request, known, entities)
        return str(answer.decision).rsplit(".", 1)[-1] != "Allow"

    return decide


MODEL = """
[request_definition]
r = sub, act, path
[policy_definition]
p = sub, act, path, eft
[policy_effect]
e = !some(where (p.eft == deny))
[matchers]
m = r.sub == p.sub && r.act == p.act && keyMatch(r.path, p.path)
"""


def casbin_(lines: Sequence[Line]) -> Decide:
    """Casbin: a line a rule with the effect `deny`."""
    import casbin

    with tempfile.TemporaryDirectory() as folder:
        model, rules = Path(folder) / "model.conf", Path(folder) / "policy.csv"
        model.write_text(MODEL)
        rules.write_text("".join(f"p, {one.principal}, {one.tool}, {one.folder}/*, deny\n" for one in lines))
        enforcer = casbin.Enforcer(str(model), str(rules))

    def decide(question: Question) -> bool:
        return not enforcer.enforce(question.principal, question.tool, question.path)

    return decide


def measure(name: str, decide: Decide, questions: Sequence[Question], seconds: float) -> Measured:
    """Ask every question at least once, and go on for `seconds`."""
    answers = [decide(question) for question in questions]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 100:
        for question in questions:
            began = time.perf_counter()
            decide(question)
            times.append((time.perf_counter() - began) * 1e6)
            if len(times) >= 100 and time.perf_counter() > end:
                break
    times.sort()
    return Measured(name, statistics.median(times), times[int(len(times) * 0.99)], sum(answers))


def main() -> int:
    """Measure whatever is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each engine")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lines, questions = made(given.rules)
    wanted = sum(any(line.meets(question) for line in lines) for question in questions)
    found, missing = [], []
    for name, make in (("packhost", ours), ("cedarpy", cedar), ("pycasbin", casbin_)):
        try:
            decide = make(lines)
        except ImportError:
            missing.append(name)
            continue
        found.append(measure(name, decide, questions, given.seconds))
    wrong = [one.engine for one in found if one.denied != wanted]
    if given.json:
        facts = [
            {"engine": m.engine, "median_us": m.median, "p99_us": m.p99, "denied": m.denied} for m in found
        ]
        print(
            json.dumps({"rules": given.rules, "engines": facts, "missing": missing, "wrong": wrong}, indent=2)
        )
    else:
        print(f"one decision over {given.rules} rules, microseconds")
        for one in found:
            print(f"  {one.engine:<9} median {one.median:10.1f}   p99 {one.p99:10.1f}   denied {one.denied}")
        for name in missing:
            print(f"  {name:<9} not installed: pip install 'packhost[bench]'")
        for name in wrong:
            print(f"  {name} answers otherwise than the rules say: {wanted} are to be denied")
    return 1 if wrong or found[0].median > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
