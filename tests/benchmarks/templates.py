"""What a call of a tool of kind `http` costs before anything is sent: `python tests/benchmarks/templates.py`.

Measured is the filling of URL, headers and body, and the check of the host and of the address that a name
has, without the look-up itself: the most that the host adds to the network's own time, held to 50 µs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from packhost.kinds.addresses import reachable
from packhost.kinds.egress import check_scopes
from packhost.kinds.http_config import prepare
from packhost.kinds.templates import Values
from packhost.manifest.model import ToolSpec
from packhost.rules.scopes import Layer, parse_scope

SPEC = ToolSpec(
    name="update_ticket",
    description="Update a ticket.",
    kind="http",
    permission="write",
    config={
        "url": "https://api.example.com/v1/projects/{{project}}/tickets/{{ticket}}?notify={{notify}}&by={{_endUser.id}}",
        "headers": {
            "Authorization": "Bearer {{secret:TICKETS_KEY}}",
            "X-Tenant": "{{_tenant.id}}",
            "Accept": "application/json",
        },
        "body": {
            "title": "{{title}}",
            "labels": "{{labels}}",
            "note": "by {{_endUser.id}}: {{note}}",
            "fields": {"priority": "{{priority}}", "source": "agent"},
        },
    },
    required_scopes=("network api.example.com", "secret TICKETS_KEY"),
)
ARGUMENTS = {
    "project": "web shop",
    "ticket": "T-1042",
    "notify": True,
    "title": "The cart forgets what was put into it",
    "labels": ["bug", "cart"],
    "note": "seen on two browsers, since the last release " * 4,
    "priority": 2,
}
VALUES = Values(ARGUMENTS, {"TICKETS_KEY": "k" * 40}, {"_tenant.id": "acme", "_endUser.id": "ann"})
LAYERS = tuple(
    Layer(name, tuple(parse_scope(line) for line in lines))
    for name, lines in {
        "workspace bound": [*(f"network host{n}.example.com" for n in range(20)), *SPEC.required_scopes],
        "accepted bound": ["path read **", *SPEC.required_scopes],
        "manifest": list(SPEC.required_scopes),
    }.items()
)
ADDRESSES = ("93.184.216.34", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")


def timed(work: Callable[[], object], rounds: int = 5000) -> tuple[float, float]:
    """Median and 99th percentile of one call, in microseconds of the processor."""
    took = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        took.append((time.thread_time_ns() - start) / 1000)
    took.sort()
    return statistics.median(took), took[int(rounds * 0.99)]


def main() -> None:
    ready = prepare(SPEC)
    target = ready.fill(VALUES).target

    def fill() -> object:
        return ready.fill(VALUES)

    def egress() -> object:
        exact = check_scopes(target, LAYERS)
        return [reachable(text, target.host, exact) for text in ADDRESSES]

    def both() -> object:
        return fill(), egress()

    print("| step | median µs | p99 µs |\n| --- | --- | --- |")
    for name, work in {"fill": fill, "egress": egress, "both": both}.items():
        median, tail = timed(work)
        print(f"| {name} | {median:.1f} | {tail:.1f} |")


if __name__ == "__main__":
    main()
