"""Host names in the one form in which scopes compare them."""

from __future__ import annotations

import ipaddress
import re
import unicodedata

from packhost.errors import ConfigInvalid
from packhost.rules.globs import printable

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMERIC = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")


def canonical_host(text: str) -> str:
    """A host name in the one form in which hosts are compared: lower case, IDNA's ASCII, no brackets.

    :raises ConfigInvalid: it is not an exact host name or address: no wildcard, no other spelling of
        an IPv4 address, no zone, no final dot.
    """
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    shown = f"`{printable(text)}`"
    if ":" in host:
        try:
            # A zone is this machine's business and no part of a name that a scope could give.
            return ipaddress.IPv6Address("" if "%" in host else host).compressed
        except ValueError:
            raise ConfigInvalid(f"{shown} is no IPv6 address", hint="write it as `[2001:db8::1]`") from None
    if host != text:
        raise ConfigInvalid(f"{shown} is no IPv6 address", hint="only IPv6 addresses stand in brackets")
    host = _ascii_host(host, shown)
    labels = host.split(".")
    if "*" in host or not all(_LABEL.match(label) for label in labels) or len(host) > 253:
        raise ConfigInvalid(
            f"{shown} is no exact host name",
            hint="name each host in full, without wildcard, scheme, path or final dot",
        )
    if _NUMERIC.match(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ConfigInvalid(
                f"{shown} is no IPv4 address", hint="write four decimal numbers, such as `127.0.0.1`"
            ) from None
    return host


def _ascii_host(host: str, shown: str) -> str:
    if host.isascii():
        return host.lower()
    written = unicodedata.normalize("NFC", host).lower()
    try:
        encoded = written.encode("idna")
        if encoded.decode("idna") == written:
            return encoded.decode("ascii").lower()
    except UnicodeError:
        pass
    # A name whose spelling is mapped to another by one version of IDNA names two hosts: choose one.
    raise ConfigInvalid(
        f"the host {shown} has no single ASCII form", hint="write its ASCII form, which starts with `xn--`"
    )
