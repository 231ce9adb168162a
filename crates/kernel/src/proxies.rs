//! The client's address behind trusted proxies, and ranges of addresses.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

/// Parses an address (as a range of one) or a CIDR range. A range of IPv4-mapped IPv6 addresses is converted
/// to the IPv4 range, because mapped addresses of clients are converted, too.
pub fn parse_range(text: &str) -> Option<IpNet> {
    let range = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().ok()?,
    };
    let IpNet::V6(v6) = range else { return Some(range) };
    match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (Some(v4), Some(prefix)) => Ipv4Net::new(v4, prefix).ok().map(IpNet::V4),
        _ => Some(range),
    }
}

/// Returns the address of the client behind the trusted proxies: the rightmost hop that isn't a trusted
/// proxy. Returns `None` if a trusted proxy doesn't send the client's address, or sends an invalid one.
///
/// `forwarded_for` contains every `X-Forwarded-For` value in the order of the headers. It counts only if the
/// TCP peer is trusted, because anyone can send the header. The peer's address never replaces an invalid hop.
/// Otherwise, a client could appear as the proxy.
pub fn client_address<'a>(
    peer: IpAddr,
    forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[IpNet],
) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return Some(peer);
    }
    forwarded_address(forwarded_for, trusted)
}

/// Returns the address of the client like [`client_address`], for the header of a proxy that is already
/// trusted, for instance by its token.
///
/// The values are bytes, because a header may contain any bytes. Each hop is parsed separately, so that bytes
/// sent by a client can't hide the hop that the proxy added.
pub fn forwarded_address<'a>(
    forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[IpNet],
) -> Option<IpAddr> {
    let mut client = None;
    for hop in forwarded_for.rev().flat_map(|value| value.rsplit(|byte| *byte == b',')) {
        let address = parse_hop(std::str::from_utf8(hop).ok()?.trim_matches([' ', '\t']))?;
        client = Some(address);
        if !is_trusted(address, trusted) {
            break;
        }
    }
    client
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|range| range.contains(&address))
}

/// Parses a hop: an address, which some proxies write in brackets or with a port.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(inner) = bare {
        return inner.parse::<std::net::Ipv6Addr>().ok().map(|v6| IpAddr::V6(v6).to_canonical());
    }
    let address = hop.parse::<IpAddr>().or_else(|_| hop.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_right_most_untrusted_hop() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"].map(|range| range.parse().unwrap());
        let cases: [(&str, &[&str], &str); 26] = [
            ("203.0.113.7", &[], "203.0.113.7"),
            ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
            ("10.0.0.1", &[], "-"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1,198.51.100.1 , 10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1", "10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 2.2.2.2", "10.0.0.3,10.0.0.2"], "2.2.2.2"),
            ("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            ("10.0.0.1", &["198.51.100.1, garbage, 10.0.0.2"], "-"),
            ("10.0.0.1", &["198.51.100.1, garbage"], "-"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "-"),
            ("10.0.0.1", &["198.51.100.1", "fe80::1%eth0"], "-"),
            ("10.0.0.1", &["198.51.100.1", ""], "-"),
            ("10.0.0.1", &[""], "-"),
            ("10.0.0.1", &["198.51.100.1,"], "-"),
            ("10.0.0.1", &["é, 198.51.100.1"], "198.51.100.1"),
            ("203.0.113.7", &["garbage"], "203.0.113.7"),
            ("10.0.0.1", &["garbage, 198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db9::1]:4711"], "2001:db9::1"),
            ("10.0.0.1", &["[2001:db9::1]"], "2001:db9::1"),
            ("2001:db8::5", &["198.51.100.1, 2001:db8::6"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1\t"], "198.51.100.1"),
        ];
        for (peer, headers, expected) in cases {
            let bytes = headers.iter().map(|text| text.as_bytes());
            let found = client_address(peer.parse().unwrap(), bytes, &proxies);
            let found = found.map_or("-".to_owned(), |address| address.to_string());
            assert_eq!(found, expected, "{peer} {headers:?}");
        }
        let said = |headers: &[&str]| {
            let bytes = headers.iter().map(|text| text.as_bytes());
            forwarded_address(bytes, &proxies).map(|address| address.to_string())
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["garbage"]), None);
        assert_eq!(said(&["1.1.1.1, 198.51.100.1"]).as_deref(), Some("198.51.100.1"));
        assert_eq!(said(&["1.1.1.1", "198.51.100.1, 10.0.0.2"]).as_deref(), Some("198.51.100.1"));
        let nobody = client_address("10.0.0.1".parse().unwrap(), [b"1.1.1.1".as_slice()].into_iter(), &[]);
        assert_eq!(nobody, Some("10.0.0.1".parse().unwrap()));
    }

    proptest::proptest! {
        #[test]
        fn headers_of_a_client_never_replace_the_proxy_s_hop(
            sent in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..40), 0..4),
            client in proptest::array::uniform4(proptest::num::u8::ANY),
            is_appended in proptest::bool::ANY,
        ) {
            let trusted = [parse_range("10.0.0.0/8").unwrap()];
            let proxy = IpAddr::from([10, 0, 0, 1]);
            let client = IpAddr::from(client);
            // The proxy appends to the header, like `$proxy_add_x_forwarded_for`, or adds its own header.
            let own = client.to_string().into_bytes();
            let mut values = sent.clone();
            match values.last_mut().filter(|_| is_appended) {
                Some(last) => {
                    last.extend_from_slice(b", ");
                    last.extend_from_slice(&own);
                }
                None => values.push(own),
            }
            let found = client_address(proxy, values.iter().map(Vec::as_slice), &trusted);
            if !is_trusted(client, &trusted) {
                proptest::prop_assert_eq!(found, Some(client));
            }
            // Without the proxy's hop, the client is never taken for the proxy itself, unless the header
            // names the proxy's address.
            let found = client_address(proxy, sent.iter().map(Vec::as_slice), &trusted);
            let says_so = sent.concat().windows(8).any(|part| part == b"10.0.0.1");
            proptest::prop_assert!(found != Some(proxy) || says_so);
        }
    }
}
