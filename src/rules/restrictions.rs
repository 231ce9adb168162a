//! What an API key may do and from where: its permissions, its allowed addresses, and whose address a request has.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Serialize, Serializer};

use kernel::error::Detail;

/// The most entries of one `allowed_ips` list.
pub const MAX_ALLOWED_IPS: usize = 100;

/// The addresses from which a key may be used: 1 to 100 addresses or CIDR ranges, kept as they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedIps(Vec<AllowedIp>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct AllowedIp {
    text: String,
    range: IpNet,
}

impl AllowedIps {
    /// Reads a list; `param` is its JSON path, for instance `restrictions.allowed_ips`.
    ///
    /// # Errors
    /// One detail for each bad entry (`…[2]`, code `invalid_ip`), or one for the list (`empty`, `too_many`).
    pub fn parse<S: AsRef<str>>(entries: &[S], param: &str) -> Result<Self, Vec<Detail>> {
        let whole = |code, message: String| Err(vec![Detail { param: param.to_owned(), code, message }]);
        if entries.is_empty() {
            let message = "must name at least one address; null removes the restriction".to_owned();
            return whole("empty", message);
        }
        if entries.len() > MAX_ALLOWED_IPS {
            return whole("too_many", format!("must have at most {MAX_ALLOWED_IPS} entries"));
        }
        let mut good = Vec::with_capacity(entries.len());
        let mut bad = Vec::new();
        for (index, entry) in entries.iter().map(AsRef::as_ref).enumerate() {
            match parse_range(entry) {
                Some(range) => good.push(AllowedIp { text: entry.to_owned(), range }),
                None => bad.push(Detail {
                    param: format!("{param}[{index}]"),
                    code: "invalid_ip",
                    message: "must be an IPv4 or IPv6 address or a CIDR range such as `203.0.113.0/24`"
                        .to_owned(),
                }),
            }
        }
        if bad.is_empty() { Ok(Self(good)) } else { Err(bad) }
    }

    /// The entries as they were given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.text.as_str())
    }

    /// What the list takes in memory besides itself, in bytes, about.
    pub fn memory(&self) -> usize {
        self.0.iter().map(|entry| size_of::<AllowedIp>() + entry.text.capacity()).sum()
    }

    /// Whether every entry of this list lies within one entry of the other.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|own| other.0.iter().any(|entry| entry.range.contains(&own.range)))
    }

    /// Whether one of the entries holds this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|entry| entry.range.contains(&address))
    }
}

impl Serialize for AllowedIps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.texts())
    }
}

/// An address (as a range of one) or a CIDR range. A range of IPv4-mapped IPv6 addresses is read as the IPv4
/// range that it stands for, because clients' mapped addresses are too.
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

/// Whether a key with this list may be used from this address. With a list, an unknown address is refused.
pub fn ip_allowed(list: Option<&AllowedIps>, client: Option<IpAddr>) -> bool {
    match (list, client) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(list), Some(client)) => list.contains(client),
    }
}

/// The address of the client behind the trusted proxies: the right-most hop that isn't one of them. `None` when a
/// trusted proxy doesn't say where the client is, or says it unreadably.
///
/// `forwarded_for` gives every `X-Forwarded-For` value in the order of the headers. It counts only when the TCP
/// peer is trusted, because anybody can send the header. The peer's own address never stands in for an unreadable
/// hop: a client could otherwise pass as the proxy.
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

/// The same of what a proxy says that is trusted already, for instance by its token.
///
/// The values are bytes, because a header may hold any; each hop is read by itself, so that bytes a client sent
/// can't hide the hop that the proxy added.
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

/// One hop: an address, which some proxies put in brackets or write with a port.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(inner) = bare {
        return inner.parse::<std::net::Ipv6Addr>().ok().map(|v6| IpAddr::V6(v6).to_canonical());
    }
    let address = hop.parse::<IpAddr>().or_else(|_| hop.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// What a key may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Chat completions.
    Chat,
    /// Vectors of texts.
    Embeddings,
    /// The model catalog.
    Models,
    /// Files.
    Files,
}

impl Permission {
    /// Every permission, in the order in which lists show them.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Embeddings, Self::Models, Self::Files];

    /// The word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Files => "files",
        }
    }

    /// Reads the word in JSON.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == text)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Chat => 1,
            Self::Embeddings => 2,
            Self::Models => 4,
            Self::Files => 8,
        }
    }
}

/// A set of permissions; in the database the words with a space between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// Whether every permission is in it.
    pub fn is_all(self) -> bool {
        self == Self::all()
    }

    /// Every permission.
    pub fn all() -> Self {
        Permission::ALL.into_iter().collect()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// In the order chat, embeddings, models, files.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }

    /// Reads words with single spaces between them; `None` when one is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        text.split(' ').map(Permission::parse).collect()
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |bits, permission| bits | permission.bit()))
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, permission) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(permission.as_str())?;
        }
        Ok(())
    }
}

impl Serialize for Permissions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Permission::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowedIps {
        AllowedIps::parse(entries, "restrictions.allowed_ips").unwrap()
    }

    #[test]
    fn a_list_takes_its_entries_and_their_texts() {
        assert_eq!(list(&["10.0.0.0/8", "::1"]).memory(), 2 * size_of::<AllowedIp>() + 13);
    }

    #[test]
    fn addresses_match_their_ranges() {
        let cases: [(&[&str], &str, bool); 21] = [
            (&["203.0.113.7"], "203.0.113.7", true),
            (&["203.0.113.7"], "203.0.113.8", false),
            (&["203.0.113.0/24"], "203.0.113.0", true),
            (&["203.0.113.0/24"], "203.0.113.255", true),
            (&["203.0.113.0/24"], "203.0.114.0", false),
            (&["203.0.113.77/24"], "203.0.113.1", true),
            (&["10.0.0.0/8", "192.0.2.1"], "192.0.2.1", true),
            (&["0.0.0.0/0"], "8.8.8.8", true),
            (&["0.0.0.0/0"], "2001:db8::1", false),
            (&["::/0"], "2001:db8::1", true),
            (&["::/0"], "8.8.8.8", false),
            (&["::/0"], "::ffff:8.8.8.8", false),
            (&["2001:db8::/32"], "2001:db8:ffff::1", true),
            (&["2001:db8::/32"], "2001:db9::1", false),
            (&["2001:db8::1"], "2001:0db8:0:0::1", true),
            (&["203.0.113.0/24"], "::ffff:203.0.113.9", true),
            (&["::ffff:203.0.113.9"], "203.0.113.9", true),
            (&["::ffff:10.0.0.0/104"], "10.255.255.255", true),
            (&["::ffff:10.0.0.0/104"], "11.0.0.0", false),
            (&["203.0.113.7/32"], "203.0.113.7", true),
            (&["203.0.113.6/31"], "203.0.113.8", false),
        ];
        for (entries, client, expected) in cases {
            let allowed = ip_allowed(Some(&list(entries)), Some(client.parse().unwrap()));
            assert_eq!(allowed, expected, "{entries:?} {client}");
        }
        assert!(ip_allowed(None, None));
        assert!(ip_allowed(None, Some("203.0.113.7".parse().unwrap())));
        assert!(!ip_allowed(Some(&list(&["0.0.0.0/0", "::/0"])), None));
    }

    #[test]
    fn bad_entries_are_named_by_their_place() {
        let bad = [
            "",
            " ",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0",
            "2001:db8::/129",
            "10.0.0.1 ",
            "localhost",
            "fe80::1%eth0",
            "10.0.0.0/-1",
            "010.0.0.1",
            "10.0.0.1:80",
            "*",
        ];
        let details = AllowedIps::parse(&bad, "p").unwrap_err();
        let found: Vec<_> = details.iter().map(|d| (d.param.clone(), d.code)).collect();
        let expected: Vec<_> = (0..bad.len()).map(|i| (format!("p[{i}]"), "invalid_ip")).collect();
        assert_eq!(found, expected);

        let one = AllowedIps::parse(&["10.0.0.1", "nonsense"], "restrictions.allowed_ips").unwrap_err();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].param, "restrictions.allowed_ips[1]");
    }

    #[test]
    fn a_list_has_one_to_a_hundred_entries() {
        let code = |entries: &[&str]| AllowedIps::parse(entries, "p").map_err(|details| details[0].code);
        assert_eq!(code(&[]), Err("empty"));
        assert!(code(&["10.0.0.1"; 100]).is_ok());
        assert_eq!(code(&["10.0.0.1"; 101]), Err("too_many"));
    }

    #[test]
    fn a_list_is_shown_as_it_was_given() {
        let given = ["203.0.113.77/24", "2001:DB8::1", "::ffff:10.0.0.1", "10.0.0.1"];
        assert_eq!(serde_json::to_string(&list(&given)).unwrap(), serde_json::to_string(&given).unwrap());
    }

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

    #[test]
    fn permissions_are_a_set_in_a_fixed_order() {
        let cases = [
            ("", Some("")),
            ("chat", Some("chat")),
            ("files chat", Some("chat files")),
            ("chat chat", Some("chat")),
            ("files models embeddings chat", Some("chat embeddings models files")),
            ("chat  files", None),
            (" chat", None),
            ("Chat", None),
            ("audio", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Permissions::parse(text).map(|p| p.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Permissions::all().to_string(), "chat embeddings models files");
        assert_eq!(
            serde_json::to_string(&Permissions::all()).unwrap(),
            r#"["chat","embeddings","models","files"]"#
        );
        let two: Permissions = [Permission::Files, Permission::Chat, Permission::Files].into_iter().collect();
        assert!(two.contains(Permission::Chat) && !two.contains(Permission::Models) && !two.is_empty());
        assert!(Permissions::default().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn every_set_reads_back(bits in 0_u8..16) {
            let set = Permissions(bits);
            proptest::prop_assert_eq!(Permissions::parse(&set.to_string()), Some(set));
            proptest::prop_assert_eq!(set.iter().collect::<Permissions>(), set);
        }

        #[test]
        fn whatever_a_client_sends_its_own_hop_stands(
            sent in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..40), 0..4),
            client in proptest::array::uniform4(proptest::num::u8::ANY),
            is_appended in proptest::bool::ANY,
        ) {
            let trusted = [parse_range("10.0.0.0/8").unwrap()];
            let proxy = IpAddr::from([10, 0, 0, 1]);
            let client = IpAddr::from(client);
            // What `$proxy_add_x_forwarded_for` makes of it, and what a proxy does that adds a header of its own.
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
            // Without the proxy's hop nothing makes the client the proxy itself, unless it is said in so many words.
            let found = client_address(proxy, sent.iter().map(Vec::as_slice), &trusted);
            let says_so = sent.concat().windows(8).any(|part| part == b"10.0.0.1");
            proptest::prop_assert!(found != Some(proxy) || says_so);
        }
    }
}
