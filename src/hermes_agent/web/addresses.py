"""Web addresses that Hermes may reach: http or https, no credentials, an ordinary port, a public network.

A name is resolved once. Every address it has must be public, and the connection goes to exactly the address that was
checked, so a name server that answers differently a second time changes nothing. The owner may name private hosts in
`web.private_hosts`; nothing else opens them.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_config.errors import HermesError

if TYPE_CHECKING:
    import httpx2

    from hermes_config.config import Config

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_LONGEST = 4_096
_PORTS = {"http": 80, "https": 443}
# The ports that browsers block (fetch.spec.whatwg.org, "bad port"): protocols that an HTTP request could be taken for.
_BAD_PORTS = (
    "0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123"
    " 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993"
    " 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080"
)
_LOCAL_NAMES = re.compile(r"(?:^|\.)(?:localhost|local|localdomain|internal|intranet|lan|home|corp|home\.arpa|onion)$")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)$")
_SPECIAL_NETWORKS = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24"
    " 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24"
    " 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20"
)
_SPECIAL = tuple(map(ipaddress.ip_network, _SPECIAL_NETWORKS.split()))
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(HermesError):
    """This address is not fetched."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A parsed address whose host has not been resolved yet."""

    url: httpx2.URL
    """Without userinfo and fragment."""
    host: str
    """In ASCII, lower case, without a trailing dot or brackets."""
    port: int

    @property
    def text(self) -> str:
        """The address with an ASCII host, so that a person sees which name it is."""
        return str(self.url.copy_with(host=self.host))


@dataclass(frozen=True, slots=True)
class WebPolicy:
    """The owner's settings on where requests may go, and through what."""

    private_hosts: frozenset[str] = frozenset()
    blocked: tuple[str, ...] = ()
    proxy: str | None = None

    @classmethod
    def of(cls, config: Config) -> WebPolicy:
        listed = config.security.website_blocklist
        blocked = tuple(map(_configured_host, listed.domains)) if listed.enabled else ()
        return cls(frozenset(map(_configured_host, config.web.private_hosts)), blocked, config.web.proxy)

    def opens(self, address: WebAddress) -> bool:
        """Whether the owner named this host, alone or with its port."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        return bool(self.private_hosts & {address.host, host, f"{host}:{address.port}"})

    def check(self, address: WebAddress) -> None:
        """Refuse a host by its name, before anybody is asked for its address."""
        host = address.host
        if any(host == one or host.endswith(f".{one}") for one in self.blocked if one):
            raise AddressRefused(f"{host} is on the list of blocked websites", hint="Do not try to get around it.")
        if self.opens(address):
            return
        if str(address.port) in _BAD_PORTS.split():
            raise AddressRefused(f"port {address.port} is not a web port")
        if _is_number(host):
            self.choose(address, [host])
        elif _LOCAL_NAMES.search(host) or "." not in host:
            raise _private(host)

    def choose(self, address: WebAddress, found: Sequence[str]) -> list[str]:
        """The addresses to connect to, in order. One private address among them refuses the name."""
        if not found:
            raise AddressRefused(f"{address.host} has no address")
        if not self.opens(address):
            for one in found:
                ip = ipaddress.ip_address(one)
                if not is_public(ip) or _is_own_network(ip):
                    raise _private(address.host)
        return list(found)


def _private(host: str) -> AddressRefused:
    return AddressRefused(
        f"{host} is a private or local address", hint="The owner can allow it: web.private_hosts in config.yaml."
    )


def parse(text: str) -> WebAddress:
    """Read an address. Raises `AddressRefused` for anything but a plain address of the web."""
    import httpx2  # imported for the first request

    text = text.strip()
    if len(text) > _LONGEST:
        raise AddressRefused(f"an address has at most {_LONGEST:,} characters")
    try:
        url = httpx2.URL(text)
        host = url.raw_host.decode("ascii").lower().removesuffix(".").strip("[]")
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefused(f"not an address: {text[:200]!r}") from error
    if url.scheme not in _PORTS:
        raise AddressRefused(f"{text[:200]!r} is not an http or https address")
    if url.userinfo:
        raise AddressRefused("an address with a user name or password is not fetched")
    port = _PORTS[url.scheme] if url.port is None else url.port
    if not _is_host(host) or not 0 <= port <= 65_535:
        raise AddressRefused(f"not a host: {host[:100]!r}")
    if _is_number(host):
        host = str(ipaddress.ip_address(host))
    whole = url.copy_with(fragment=None, path=url.path) if url.path == "/" else url.copy_with(fragment=None)
    return WebAddress(whole, host, port)


def _configured_host(text: str) -> str:
    """A host of a setting, spelled as in `WebAddress.host`, with its port if it names one."""
    named = re.sub(r"^[a-z]+://|[/?#].*$", "", text.strip().lower()).removeprefix("*.").strip(".")
    host, port = named, ""
    if found := re.fullmatch(r"([^:]*|\[.*\]):(\d+)", named):
        host, port = found.groups()
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    with suppress(AddressRefused):
        host = parse(f"http://{bracketed}/").host
    return f"[{host}]:{port}" if port and ":" in host else f"{host}:{port}" if port else host


def _is_number(host: str) -> bool:
    """Whether it is an address in its usual form, not a name."""
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    if _is_number(host):
        return "%" not in host
    # Some programs read `0x7f.1`, `2130706433` or `0177.0.0.1` as an address; here they are no hosts.
    labels = host.split(".")
    return (
        len(host) <= 253
        and all(0 < len(one) <= 63 and re.fullmatch(r"[a-z0-9_-]+", one) for one in labels)
        and not _NUMBER.match(labels[-1])
    )


def _is_own_network(address: IPAddress) -> bool:
    """Whether a public address is this machine's, or an IPv6 neighbour's: there, home networks have public ones."""
    source = _source_address(address)
    if source is None or source.version != address.version:
        return False
    return int(source) == int(address) if address.version == 4 else int(source) >> 64 == int(address) >> 64


def _source_address(address: IPAddress) -> IPAddress | None:
    """The local address that the kernel would use to reach another address. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(address), 9))
        return ipaddress.ip_address(probe.getsockname()[0])
    return None


def is_public(address: IPAddress) -> bool:
    """Whether the address belongs to the public Internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:  # how a network without IPv4 reaches IPv4
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_IPV6 or address.scope_id is not None:
            return False
    return not any(address in network for network in _SPECIAL if network.version == address.version)
