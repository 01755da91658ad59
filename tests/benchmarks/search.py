"""What a tool search over 5,000 tools takes.

    python tests/benchmarks/search.py [--tools 5000]

Exits 0 whether or not the goal is met.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from packhost.api import OfferedTool
from packhost_packs.agent_runtime.searching import Index

GOAL = 20.0
WORDS = [
    "user",
    "order",
    "mail",
    "file",
    "report",
    "account",
    "invoice",
    "ticket",
    "comment",
    "branch",
    "team",
    "access",
    "policy",
    "weather",
]
QUERIES = ("cancel the invoice of an account", "user", "weather report", "who may access this branch")


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="What a tool search takes.")
    parser.add_argument("--tools", type=int, default=5000)
    count = parser.parse_args().tools
    tools = [
        OfferedTool(
            f"{WORDS[n % 14]}_{WORDS[n // 14 % 14]}_{n}",
            f"inline:tool_{n}",
            f"Take the {WORDS[n % 11]} of a {WORDS[n % 13]} and change its {WORDS[n % 7]}; number {n}. " * 2,
            {"type": "object", "properties": {"id": {}, WORDS[n % 5]: {}}},
        )
        for n in range(count)
    ]
    begin = time.perf_counter()
    index = Index(tools)
    made = (time.perf_counter() - begin) * 1000
    taken = []
    for _ in range(20):
        for query in QUERIES:
            begin = time.perf_counter()
            index.find(query)
            taken.append((time.perf_counter() - begin) * 1000)
    median = statistics.median(taken)
    print(f"made ready, once a run  {made:8.2f} ms")
    verdict = "met" if median <= GOAL else "missed"
    print(f"one search              {median:8.2f} ms  {verdict} (goal {GOAL:g} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
