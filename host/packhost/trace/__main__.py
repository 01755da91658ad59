"""`python -m packhost.trace FILE…`: the validator with nothing but Python's standard library."""

from __future__ import annotations

import argparse
import sys

from packhost.trace.report import check_files


def main(arguments: list[str] | None = None) -> int:
    """Check the files named on the command line; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m packhost.trace", description="Check traces of agent turns."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a trace, as JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")
    given = parser.parse_args(arguments)
    return check_files(given.files, print, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
