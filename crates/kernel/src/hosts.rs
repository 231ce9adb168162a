//! Hosts: whether a name or an address belongs to this machine, a private network or the public Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The ranges outside the public Internet: the registries of special addresses (RFC 6890), multicast,
/// reserved addresses, and IPv6 addresses that represent an IPv4 address.
const NOT_PUBLIC: &[IpNet] = &[
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    SHARED,
    v4([127, 0, 0, 0], 8),
    // Link-local, including the metadata service of most clouds.
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    // Relays of 6to4, which is obsolete.
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    // A public address that virtual machines in Azure use to reach their host.
    v4([168, 63, 129, 16], 32),
    // Everything outside 2000::/3, the only global unicast range of IPv6: loopback, mapped, NAT64, unique
    // local, link-local, multicast and unassigned addresses.
    v6([0, 0], 3),
    v6([0x4000, 0], 2),
    v6([0x8000, 0], 1),
    // Protocol assignments, including Teredo (2001::/32), benchmarking and ORCHID.
    v6([0x2001, 0], 23),
    v6([0x2001, 0x0db8], 32),
    // 6to4.
    v6([0x2002, 0], 16),
    v6([0x3fff, 0], 20),
];

/// Addresses shared by networks behind carrier-grade NAT (RFC 6598). One cloud also has its metadata service
/// in this range.
const SHARED: IpNet = v4([100, 64, 0, 0], 10);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6([a, b]: [u16; 2], prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix))
}

/// Returns `true` if an address belongs to the public Internet. Loopback, private, link-local, shared,
/// documentation, multicast and reserved addresses don't, nor do IPv6 addresses that represent an IPv4
/// address (mapped, NAT64, 6to4, Teredo).
///
/// Customers may choose only public addresses. Otherwise, they could reach services that only this server can
/// reach: services on the machine, in its network, and its cloud's metadata
/// (docs/contract/webhooks.md#addresses).
pub fn is_public(address: IpAddr) -> bool {
    !NOT_PUBLIC.iter().any(|range| range.contains(&address))
}

/// Returns `true` if a host's name or address shows that it is this machine or in a private network. This
/// isn't the opposite of [`is_public`]: both return `false` for documentation, multicast, NAT64 and other
/// special ranges.
pub fn is_private(host: &str) -> bool {
    match address(host).map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => {
            let is_shared = SHARED.contains(&IpAddr::V4(address));
            address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
        }
        Some(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        None => {
            let name = host.trim_end_matches('.').to_lowercase();
            let is_private = |last| ["localhost", "local", "internal", "svc", "lan"].contains(&last);
            name.rsplit_once('.').is_none_or(|(_, last)| is_private(last))
        }
    }
}

/// Returns `true` if a host is this machine, by its name or its address.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|address| address.is_loopback())
}

/// Parses a host that is an IP address; an IPv6 address may be in brackets. Returns `None` for a name.
pub fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges that each former check refused.
    const CHECKS: [(&str, &[&str]); 3] = [
        ("loopback: origins, providers of sign-ons, passkeys, PostgreSQL", &["127.0.0.0/8", "::1/128"]),
        (
            "private: upstreams, Stripe",
            &[
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.168.0.0/16",
                "::1/128",
                "fc00::/7",
                "fe80::/10",
            ],
        ),
        (
            "not global: webhooks, media",
            &[
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "168.63.129.16/32",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.0.0.0/24",
                "192.0.2.0/24",
                "192.88.99.0/24",
                "192.168.0.0/16",
                "198.18.0.0/15",
                "198.51.100.0/24",
                "203.0.113.0/24",
                "224.0.0.0/4",
                "240.0.0.0/4",
                "::/3",
                "::/128",
                "::ffff:0:0/96",
                "64:ff9b::/96",
                "64:ff9b:1::/48",
                "100::/64",
                "2001::/23",
                "2001:db8::/32",
                "2002::/16",
                "3fff::/20",
                "4000::/2",
                "5f00::/16",
                "8000::/1",
                "fc00::/7",
                "fe80::/10",
                "fec0::/10",
                "ff00::/8",
            ],
        ),
    ];

    /// Returns an address and its representations in IPv6.
    fn forms(address: IpAddr) -> Vec<IpAddr> {
        let IpAddr::V4(v4) = address else { return vec![address] };
        let bits = u128::from(u32::from(v4));
        let [nat64, local_nat64, six_to_four, teredo] = ["64:ff9b::", "64:ff9b:1::", "2002::", "2001::"]
            .map(|first| u128::from(first.parse::<Ipv6Addr>().unwrap()));
        let forms =
            [nat64 | bits, local_nat64 | bits, six_to_four | bits << 80, teredo | (bits ^ 0xffff_ffff)];
        [address, v4.to_ipv6_mapped().into(), v4.to_ipv6_compatible().into()]
            .into_iter()
            .chain(forms.map(|bits| Ipv6Addr::from(bits).into()))
            .collect()
    }

    #[test]
    fn ranges_that_a_check_has_ever_refused_are_not_public() {
        for (check, ranges) in CHECKS {
            for range in ranges {
                let range: IpNet = range.parse().unwrap();
                for address in [range.network(), range.broadcast()].into_iter().flat_map(forms) {
                    assert!(!is_public(address), "{check}: {range}: {address}");
                }
            }
        }
    }

    #[test]
    fn representations_of_public_addresses_are_not_public() {
        for address in ["93.184.216.34", "1.1.1.1"] {
            let [itself, others @ ..] = &forms(address.parse().unwrap())[..] else { panic!("no forms") };
            assert!(is_public(*itself), "{address}");
            for other in others {
                assert!(!is_public(*other), "{other}");
            }
        }
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        let refused = [
            ("loopback", &["127.0.0.1", "127.255.255.254", "::1"][..]),
            ("unspecified", &["0.0.0.0", "0.1.2.3", "::"]),
            ("private", &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1"]),
            ("link-local", &["169.254.0.1", "fe80::1", "febf::1"]),
            ("metadata", &["169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"]),
            ("unique local", &["fc00::1", "fdff::1"]),
            ("shared", &["100.64.0.1", "100.127.255.255"]),
            ("multicast", &["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"]),
            ("reserved", &["240.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1", "4000::1", "e000::1"]),
            ("documentation", &["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"]),
            ("mapped", &["::ffff:127.0.0.1", "::ffff:93.184.216.34", "::127.0.0.1", "::93.184.216.34"]),
            ("NAT64", &["64:ff9b::7f00:1", "64:ff9b::5db8:d822", "64:ff9b:1::1"]),
            ("6to4", &["2002:7f00:1::1", "2002:5db8:d822::1", "192.88.99.1"]),
            ("Teredo", &["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"]),
            ("protocols", &["2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff::1", "5f00::1", "100::1"]),
            ("site-local", &["fec0::1"]),
        ];
        for (kind, addresses) in refused {
            for address in addresses {
                assert!(!is_public(address.parse().unwrap()), "{kind}: {address}");
            }
        }
        for address in [
            "93.184.216.34",
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_hosts_are_recognized_by_name() {
        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "[::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "localhost",
            "vllm",
            "vllm.models.svc",
            "vllm.models.svc.cluster.local",
            "GPU.INTERNAL.",
        ] {
            assert!(is_private(host), "{host}");
        }
        for host in [
            "192.0.2.1",
            "100.128.0.1",
            "172.32.0.1",
            "0.0.0.0",
            "[2001:db8::1]",
            "[64:ff9b::7f00:1]",
            "[::ffff:93.184.216.34]",
            "api.example.com",
            "internal.example.com",
            "10.example.com",
        ] {
            assert!(!is_private(host), "{host}");
        }
    }

    #[test]
    fn only_names_and_addresses_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST", "127.8.0.1", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "[::2]", "::ffff:127.0.0.1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
