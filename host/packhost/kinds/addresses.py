"""Which addresses a request may be sent to, once its host is within the scopes."""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

_METADATA: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fd00:ec2::/32", "100.100.100.200", "168.63.129.16", "192.0.0.0/24")
)
"""Where machines of a cloud are told what they may do, some at addresses that count as public."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL6: Final = ipaddress.ip_network("2000::/3")
"""All IPv6 addresses that are given out for the public; what lies outside may be a network's own."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@functools.lru_cache(maxsize=4096)
def reachable(address: str, host: str, exact: bool) -> bool:
    """`may_reach`, of an address as it is written."""
    return may_reach(ipaddress.ip_address(address.partition("%")[0]), host, exact=exact)


def may_reach(address: Address, host: str, *, exact: bool) -> bool:
    """Public addresses always; private ones where host and port are named; this machine by its own names."""
    plain = inner_address(address)
    told = any(plain in network for network in _METADATA)
    if plain.is_global and not told and not plain.is_multicast and (plain.version == 4 or plain in _GLOBAL6):
        return True
    literal = _literal(host)
    if not exact or plain.is_multicast or plain.is_unspecified:
        return False
    if literal is not None:
        return literal == address
    if told or plain.is_link_local:
        return False
    return not plain.is_loopback or host == "localhost" or host.endswith(".localhost")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def inner_address(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that carries one; any other as it is."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address
