//! Checks the client's address. It is the peer's address unless the peer is a trusted proxy. Behind a trusted
//! proxy it is the first untrusted hop from the right, or unknown if a hop before that is unreadable. Hops
//! further left have no effect.

#![cfg_attr(feature = "engine", no_main)]

use std::net::IpAddr;

use arbitrary::Arbitrary;
use fuzz::fuzz_target;
use ipnet::IpNet;
use tollkeeper::kernel::proxies::{client_address, forwarded_address, parse_range};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    peer: IpAddr,
    headers: Vec<Vec<Hop<'a>>>,
    /// The trusted ranges: an address and a prefix length each.
    trusted: Vec<(IpAddr, u8)>,
    /// The leftmost part of the header, which the client invents.
    invention: &'a str,
}

#[derive(Arbitrary, Debug)]
enum Hop<'a> {
    Text(&'a str),
    Address(IpAddr),
    /// An address with a port, or in brackets.
    Dressed(IpAddr, u16),
    /// The address of a trusted proxy.
    Trusted(u8),
}

fuzz_target!(|input: Input| {
    let trusted: Vec<IpNet> =
        input.trusted.iter().filter_map(|(address, bits)| range(*address, *bits)).collect();
    let headers: Vec<String> = input
        .headers
        .iter()
        .map(|hops| hops.iter().map(|hop| text(hop, &input.trusted)).collect::<Vec<_>>().join(","))
        .collect();
    let hops = || headers.iter().map(|header| header.as_bytes());
    let client = client_address(input.peer, hops(), &trusted);
    let is_trusted = |address: IpAddr| trusted.iter().any(|range| range.contains(&address));
    let peer = input.peer.to_canonical();
    if !is_trusted(peer) {
        assert_eq!(client, Some(peer));
        return;
    }
    let chain: Vec<&str> = headers.iter().flat_map(|header| header.split(',')).collect();
    assert_eq!(client, right_most(&chain, &is_trusted), "{headers:?}");
    // Values that the client sends are on the left, and have no effect to the left of an untrusted hop.
    let stopped = chain.iter().any(|hop| read(hop).is_none_or(|address| !is_trusted(address)));
    if stopped && !chain.is_empty() {
        let more = std::iter::once(input.invention.as_bytes()).chain(hops());
        assert_eq!(forwarded_address(more, &trusted), forwarded_address(hops(), &trusted), "{headers:?}");
    }
});

fn range(address: IpAddr, bits: u8) -> Option<IpNet> {
    let most = if address.is_ipv4() { 32 } else { 128 };
    parse_range(&format!("{address}/{}", bits % (most + 1)))
}

fn text(hop: &Hop, trusted: &[(IpAddr, u8)]) -> String {
    match hop {
        Hop::Text(text) => (*text).to_owned(),
        Hop::Address(address) => format!(" {address}"),
        Hop::Dressed(IpAddr::V6(address), 0) => format!("[{address}]"),
        Hop::Dressed(address, port) => std::net::SocketAddr::new(*address, *port).to_string(),
        Hop::Trusted(index) => trusted
            .get(usize::from(*index) % trusted.len().max(1))
            .map_or_else(String::new, |(address, _)| address.to_string()),
    }
}

/// Implements the rule of `client_address` from the right.
fn right_most(chain: &[&str], is_trusted: &impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let (last, before) = chain.split_last()?;
    let address = read(last)?;
    if is_trusted(address) && !before.is_empty() { right_most(before, is_trusted) } else { Some(address) }
}

fn read(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim_matches([' ', '\t']);
    let inner = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match inner {
        Some(inner) => IpAddr::V6(inner.parse().ok()?),
        None => hop.parse().or_else(|_| hop.parse::<std::net::SocketAddr>().map(|both| both.ip())).ok()?,
    };
    Some(address.to_canonical())
}
