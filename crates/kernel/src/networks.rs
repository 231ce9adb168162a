//! Client networks: the smallest ranges that network providers commonly assign to one customer.

use std::fmt;
use std::net::IpAddr;

/// The network of a client's address: a /24 of IPv4, a /64 of IPv6.
///
/// A client can choose any address within its network, so limits on clients count by network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Network {
    /// The first three bytes of an IPv4 address.
    V4([u8; 3]),
    /// The first four groups of an IPv6 address.
    V6([u16; 4]),
    /// All clients without a known address, together.
    Unknown,
}

impl Network {
    /// Returns the network of an address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
            None => Self::Unknown,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4([a, b, c]) => write!(f, "{a}.{b}.{c}.0/24"),
            Self::V6([a, b, c, d]) => {
                write!(f, "{}/64", std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_addresses() {
        for (address, network) in [
            ("192.0.2.1", "192.0.2.0/24"),
            ("192.0.2.255", "192.0.2.0/24"),
            ("192.0.3.0", "192.0.3.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::", "2001:db8:1:3::/64"),
            ("::1", "::/64"),
        ] {
            assert_eq!(Network::of(Some(address.parse().unwrap())).to_string(), network, "{address}");
        }
        assert_eq!(Network::of(None).to_string(), "unknown");
    }
}
