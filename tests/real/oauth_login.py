"""A person at an authorization server's pages: says a name, agrees, and is sent back to the client.

Alone: `python oauth_login.py NAME URL`, as a browser that a client starts with the URL to log in at.
"""

from __future__ import annotations

import re
import sys
from urllib.parse import urljoin

import httpx2

_STEPS = 12
_PROMPT = re.compile(r'name="prompt" value="(\w+)"')
_ACTION = re.compile(r'action="([^"]+)"')


def log_in(url: str, name: str) -> str:
    """Goes from the client's first URL to the one that leads back to the client, which is not asked."""
    origin = str(httpx2.URL(url).copy_with(path="/", query=None))
    with httpx2.Client(timeout=10) as browser:
        answer = browser.get(url)
        for _ in range(_STEPS):
            if answer.is_redirect:
                following = urljoin(str(answer.request.url), answer.headers["location"])
                if not following.startswith(origin):
                    return following
                answer = browser.get(following)
                continue
            assert answer.status_code == 200, answer.text
            prompt, action = _PROMPT.search(answer.text), _ACTION.search(answer.text)
            assert prompt is not None, answer.text
            assert action is not None, answer.text
            fields = {"prompt": prompt[1]} | (
                {"login": name, "password": "any"} if prompt[1] == "login" else {}
            )
            answer = browser.post(urljoin(str(answer.request.url), action[1]), data=fields)
    raise AssertionError(f"{url} does not lead back to the client in {_STEPS} steps")


def main() -> None:
    back = log_in(sys.argv[2], sys.argv[1])
    httpx2.get(back, timeout=30)


if __name__ == "__main__":
    main()
