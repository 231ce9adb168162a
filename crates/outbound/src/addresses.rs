//! The addresses that customers may choose: those of the public Internet.
//!
//! A customer chooses where events are sent and where media is fetched from. Without this rule, a customer could
//! reach what only this server can: its own services, its network, and the metadata of its cloud
//! (docs/contract/webhooks.md#addresses).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of IPv4 that aren't global, from the registry of special addresses (RFC 6890), with multicast and the
/// reserved range: the first address and the length of the prefix.
const NOT_GLOBAL_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Shared by networks behind carriers (RFC 6598); one cloud also serves its metadata there.
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local, with the metadata of most clouds.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    // Relays of 6to4, which is obsolete.
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    // A public address that Azure's machines use to reach their host.
    ([168, 63, 129, 16], 32),
];

/// Ranges within 2000::/3, the only global unicast of IPv6, that aren't global or carry an IPv4 address.
const NOT_GLOBAL_V6: &[([u16; 3], u32)] = &[
    // Assignments to protocols, with Teredo (2001::/32), benchmarks and ORCHID.
    ([0x2001, 0, 0], 23),
    ([0x2001, 0x0db8, 0], 32),
    // 6to4.
    ([0x2002, 0, 0], 16),
    ([0x3fff, 0, 0], 20),
];

/// Returns `true` if an address belongs to the public Internet. Loopback, private, link-local, shared,
/// documentation, multicast and reserved addresses don't, nor do those of IPv6 that stand for one of IPv4 (mapped,
/// NAT64, 6to4, Teredo).
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) => is_global_v6(address),
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    let bits = u32::from(address);
    NOT_GLOBAL_V4.iter().all(|(first, prefix)| {
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
        bits & mask != u32::from_be_bytes(*first) & mask
    })
}

fn is_global_v6(address: Ipv6Addr) -> bool {
    let bits = u128::from(address);
    let is_unicast = bits >> 125 == 0b001;
    is_unicast
        && NOT_GLOBAL_V6.iter().all(|([a, b, c], prefix)| {
            let mask = u128::MAX << (128 - prefix);
            let first = u128::from(Ipv6Addr::new(*a, *b, *c, 0, 0, 0, 0, 0));
            bits & mask != first & mask
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_global() {
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
                assert!(!is_global(address.parse().unwrap()), "{kind}: {address}");
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
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert!(is_global(address.parse().unwrap()), "{address}");
        }
    }
}
