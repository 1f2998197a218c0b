"""Which addresses may be reached: every spelling of a private one is refused."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from hermes_agent.web import addresses
from hermes_agent.web.addresses import AddressRefused, WebPolicy, is_public, parse
from hermes_config.config import of as config_of


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.9.9.9", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1",
        "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8",
        "64:ff9b::127.0.0.1", "64:ff9b::10.1.2.3", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:db8::1",
        "2002:7f00:1::", "2002:0808:0808::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "3fff::1",
        "5f00::1", "::ffff:0:127.0.0.1", "fe80::5efe:127.0.0.1", "4000::1",
    ],
)  # fmt: skip
def test_private_and_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "100.63.255.255", "172.32.0.1", "2606:2800:220:1::1", "::ffff:8.8.8.8",
     "64:ff9b::8.8.8.8", "2001:4860:4860::8888"],
)  # fmt: skip
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "text",
    [
        "", "example.com", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x",
        "gopher://example.com", "http://", "http:///x", "http://user@example.com/", "http://user:pw@example.com/",
        "http://:pw@example.com", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/",
        "http://127.1/", "http://1.2.3/", "http://a..b/", "http://example.com..", "http://[fe80::1%25eth0]/",
        "http://[::1", "http://exa mple.com/", "http://127。0。0。1.", "http://①②⑦.0.0.1", "http://example.com:99999/",
        "http://" + "a" * 64 + ".com/", "http://x/" + "a" * 5000, "http://ex\u0000ample.com", "http://-\n.com",
        "http://example.com\\@127.0.0.1/", "http://example.com:-1/",
    ],
)  # fmt: skip
def test_what_is_no_plain_address_of_the_web_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        WebPolicy().check(parse(text))


@pytest.mark.parametrize(
    "text",
    ["http://localhost/", "http://LOCALHOST./", "http://a.localhost", "http://printer/", "http://printer./",
     "http://nas.local", "http://metadata.google.internal/", "http://router.lan", "http://x.home.arpa",
     "http://x.onion", "http://example.com:22/", "http://example.com:6379x".replace("6379x", "6667")],
)  # fmt: skip
def test_local_names_and_other_ports_are_refused_before_dns(text: str) -> None:
    with pytest.raises(AddressRefused):
        WebPolicy().check(parse(text))


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    address = parse("https://example.com/")
    assert WebPolicy().choose(address, ["8.8.8.8", "2606:2800::1"]) == ["8.8.8.8", "2606:2800::1"]
    for one in ("10.0.0.1", "::1", "::ffff:192.168.1.1"):
        with pytest.raises(AddressRefused, match="private"):
            WebPolicy().choose(address, ["8.8.8.8", one])
    with pytest.raises(AddressRefused, match="no address"):
        WebPolicy().choose(address, [])


def test_the_owner_opens_a_private_host_by_name_or_with_its_port() -> None:
    policy = WebPolicy(private_hosts=frozenset({"nas.lan", "192.168.1.5:8080", "[::1]:9000"}))
    for text in ("http://nas.lan/", "http://nas.lan:5000/", "http://192.168.1.5:8080/", "http://[::1]:9000/"):
        policy.check(parse(text))
        policy.choose(parse(text), ["192.168.1.5"])
    for text in ("http://192.168.1.5/", "http://192.168.1.5:80/", "http://nas.lan.evil.example/"):
        with pytest.raises(AddressRefused):
            policy.choose(parse(text), ["192.168.1.5"])


def test_a_blocked_website_covers_the_names_below_it() -> None:
    policy = WebPolicy(blocked=("evil.example",))
    for text in ("http://evil.example/", "https://EVIL.example./x", "http://a.b.evil.example/"):
        with pytest.raises(AddressRefused, match="blocked"):
            policy.check(parse(text))
    policy.check(parse("http://notevil.example/"))


def test_a_name_in_another_script_is_shown_as_what_it_is() -> None:
    assert parse("http://аpple.com/").text == "http://xn--pple-43d.com/"  # with a Cyrillic а
    assert parse("HTTPS://Example.COM.:443/a#b").text == "https://example.com/a"


@pytest.mark.parametrize(
    ("own", "address", "refused"),
    [
        ("93.184.216.34", "93.184.216.34", True), ("93.184.216.34", "93.184.216.35", False),
        ("2a02:810:1:2::5", "2a02:810:1:2::5", True), ("2a02:810:1:2::5", "2a02:810:1:2:f00::1", True),
        ("2a02:810:1:2::5", "2a02:810:1:3::1", False),
    ],
)  # fmt: skip
def test_public_addresses_of_this_machine_and_its_ipv6_network_are_refused(
    monkeypatch: pytest.MonkeyPatch, own: str, address: str, refused: bool
) -> None:
    """A router gives every machine at home a public IPv6 address; they are as private as 192.168.1.1."""
    monkeypatch.setattr(addresses, "_source_address", lambda _: ipaddress.ip_address(own))
    site = parse("http://site.example/")
    if not refused:
        assert WebPolicy().choose(site, [address]) == [address]
        return
    with pytest.raises(AddressRefused, match="private"):
        WebPolicy().choose(site, [address])
    WebPolicy(private_hosts=frozenset({"site.example"})).choose(site, [address])


def test_the_kernel_says_from_which_address_another_one_is_reached() -> None:
    assert addresses._source_address(ipaddress.ip_address("127.0.0.9")) == ipaddress.ip_address("127.0.0.1")


def test_hosts_in_settings_count_however_they_are_spelled(tmp_path: Path) -> None:
    blocked = ["bücher.example", "https://evil.example/path", "*.ads.example.", "2001:4860:0:0::8888"]
    opened = ["NAS.lan.", "fd00:0:0::5", "[FD00::6]:8080", "drücker.lan:631"]
    tree = {"security": {"website_blocklist": {"enabled": True, "domains": blocked}}, "web": {"private_hosts": opened}}
    policy = WebPolicy.of(config_of(tmp_path, tree))
    for text in ("http://xn--bcher-kva.example/", "http://a.evil.example", "http://ads.example/",
                 "http://[2001:4860::8888]/"):  # fmt: skip
        with pytest.raises(AddressRefused, match="blocked"):
            policy.check(parse(text))
    for text in ("http://nas.lan/", "http://[fd00::5]/", "http://[fd00:0::6]:8080/", "http://xn--drcker-4ya.lan:631/"):
        assert policy.opens(parse(text)), text
    for text in ("http://[fd00::6]/", "http://xn--drcker-4ya.lan/"):
        assert not policy.opens(parse(text)), text
