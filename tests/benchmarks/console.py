"""How soon the console's pages are seen on loopback, and how much they weigh, in the system's own Chromium.

    python tests/benchmarks/console.py [--looks 15] [--waiting 20] [--json]

`packhost console` serves a workspace in which `--waiting` calls wait for a person. Each look is by a browser
profile of its own with nothing cached, which signs in and then opens the page; what counts is the first
contentful paint as Chromium tells it, from the beginning of the navigation. `first use` is the first look of
all, in a console that has rendered nothing yet. The weight is of everything that the page asks for. The goals
are 300 ms and 100 kB. It exits 0 whether or not they are met, and 1 when something did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import Browser, async_playwright

from packhost.app.entry import RemoteControl
from packhost.workspace.root import Root

PAINT, WEIGHT = 300.0, 100_000
PAGES = ("/", "/runs", "/tools", "/grants", "/audit", "/overview", "/account")
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write notes/**, path write .agent-runtime/**]
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
"""
PAINTED = """
() => new Promise((done) => {
  const found = () => performance.getEntriesByName("first-contentful-paint")[0];
  if (found()) { done(found().startTime); return; }
  new PerformanceObserver((list, observer) => {
    if (found()) { observer.disconnect(); done(found().startTime); }
  }).observe({ type: "paint", buffered: true });
})
"""


def prepare(folder: Path) -> dict[str, str]:
    (folder / "work/notes").mkdir(parents=True)
    (folder / "work/packhost.yaml").write_text(SETTINGS)
    shell = {name: value for name, value in os.environ.items() if name not in ("CLAUDECODE", "CURSOR_AGENT")}
    environment = {**shell, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    subprocess.run(command(folder, "accept", "--yes"), env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


def command(folder: Path, *words: str) -> list[str]:
    return [str(Path(sys.executable).parent / "packhost"), *words, "-w", str(folder / "work")]


async def look(browser: Browser, control: RemoteControl, url: str, path: str) -> tuple[float, int]:
    """One browser that was never here: the milliseconds to the first paint, and the bytes of it all."""
    ticket = (await control.request("console.ticket", {}))["ticket"]
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(f"{url}/console/login#{ticket}")
        await page.wait_for_url(f"{url}/console/")
        cookies = await context.cookies()
        await context.close()
        context = await browser.new_context()
        await context.add_cookies(cookies)
        page = await context.new_page()
        asked: list[Any] = []
        page.on("requestfinished", lambda request: asked.append(request))
        await page.goto(f"{url}/console{path}")
        painted = float(await page.evaluate(PAINTED))
        found = [await one.sizes() for one in asked]
        weight = sum(one["responseBodySize"] + one["responseHeadersSize"] for one in found)
        return painted, weight
    finally:
        await context.close()


async def measure(looks: int, waiting: int, folder: Path) -> dict[str, Any]:
    environment = prepare(folder)
    served = await anyio.open_process(
        command(folder, "console", "--port", "0", "--no-browser", "--json"), env=environment, stderr=None
    )
    assert served.stdout is not None
    try:
        said = b""
        while not said.rstrip().endswith(b"}"):
            said += await served.stdout.receive()
        url = json.loads(said)["url"].removesuffix("/console/")
        with Root(folder / "work", environment) as root:
            control = RemoteControl(root.socket)
            for n in range(waiting):
                given = {"path": f"notes/{n}.txt", "content": "some text\n" * 30}
                asked = {"tool": "workspace:write_file", "arguments": given}
                await control.request("call", asked)
            return await painted(control, url, looks)
    finally:
        served.terminate()
        await served.aclose()


async def painted(control: RemoteControl, url: str, looks: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with async_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        figures["first use ms"] = round((await look(browser, control, url, "/"))[0], 1)
        for page in PAGES:
            found = [await look(browser, control, url, page) for _ in range(looks)]
            times = sorted(paint for paint, _ in found)
            figures[page] = {
                "p50 ms": round(statistics.median(times), 1),
                "slowest ms": round(times[-1], 1),
                "bytes": max(weight for _, weight in found),
            }
        await browser.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=15)
    parser.add_argument("--waiting", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packhost-bench-") as folder:
        figures = anyio.run(measure, given.looks, given.waiting, Path(folder))
    if given.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    print(f"load of the machine meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    pages = [figure for figure in figures.values() if isinstance(figure, dict)]
    met = all(one["p50 ms"] <= PAINT and one["bytes"] <= WEIGHT for one in pages)
    print(f"goals: {PAINT:.0f} ms and {WEIGHT} bytes, {'met' if met else 'missed'}")


if __name__ == "__main__":
    sys.exit(main())
