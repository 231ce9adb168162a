//! Address restrictions of API keys.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use kernel::error::Detail;
use kernel::proxies::parse_range;

/// The maximum number of entries in an `allowed_ips` list.
pub const MAX_ALLOWED_IPS: usize = 100;

/// The addresses from which a key may be used: 1 to 100 addresses or CIDR ranges, stored as entered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedIps(Vec<AllowedIp>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct AllowedIp {
    text: String,
    range: IpNet,
}

impl AllowedIps {
    /// Parses a list. `param` is its JSON path, such as `restrictions.allowed_ips`.
    ///
    /// # Errors
    /// One detail for each invalid entry (`…[2]`, code `invalid_ip`), or one for the list (`empty`,
    /// `too_many`).
    pub fn parse<S: AsRef<str>>(entries: &[S], param: &str) -> Result<Self, Vec<Detail>> {
        let list_error = |code, message: String| Err(vec![Detail { param: param.to_owned(), code, message }]);
        if entries.is_empty() {
            let message = "must name at least one address; null removes the restriction".to_owned();
            return list_error("empty", message);
        }
        if entries.len() > MAX_ALLOWED_IPS {
            return list_error("too_many", format!("must have at most {MAX_ALLOWED_IPS} entries"));
        }
        let mut parsed = Vec::with_capacity(entries.len());
        let mut invalid = Vec::new();
        for (index, entry) in entries.iter().map(AsRef::as_ref).enumerate() {
            match parse_range(entry) {
                Some(range) => parsed.push(AllowedIp { text: entry.to_owned(), range }),
                None => invalid.push(Detail {
                    param: format!("{param}[{index}]"),
                    code: "invalid_ip",
                    message: "must be an IPv4 or IPv6 address or a CIDR range such as `203.0.113.0/24`"
                        .to_owned(),
                }),
            }
        }
        if invalid.is_empty() { Ok(Self(parsed)) } else { Err(invalid) }
    }

    /// Returns the entries as entered.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.text.as_str())
    }

    /// Returns the approximate heap memory of the list, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.0.iter().map(|entry| size_of::<AllowedIp>() + entry.text.capacity()).sum()
    }

    /// Returns `true` if every entry of this list is contained in an entry of the other list.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|own| other.0.iter().any(|entry| entry.range.contains(&own.range)))
    }

    /// Returns `true` if one of the entries contains this address.
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

/// Returns `true` if a key with this list may be used from this address. An unknown address (`None`) isn't
/// allowed unless the key has no list.
pub fn ip_allowed(list: Option<&AllowedIps>, client: Option<IpAddr>) -> bool {
    match (list, client) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(list), Some(client)) => list.contains(client),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowedIps {
        AllowedIps::parse(entries, "restrictions.allowed_ips").unwrap()
    }

    #[test]
    fn heap_bytes_counts_entries_and_texts() {
        assert_eq!(list(&["10.0.0.0/8", "::1"]).heap_bytes(), 2 * size_of::<AllowedIp>() + 13);
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
    fn invalid_entries_are_named_by_index() {
        let invalid = [
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
        let details = AllowedIps::parse(&invalid, "p").unwrap_err();
        let found: Vec<_> = details.iter().map(|d| (d.param.clone(), d.code)).collect();
        let expected: Vec<_> = (0..invalid.len()).map(|i| (format!("p[{i}]"), "invalid_ip")).collect();
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
    fn list_serializes_as_entered() {
        let given = ["203.0.113.77/24", "2001:DB8::1", "::ffff:10.0.0.1", "10.0.0.1"];
        assert_eq!(serde_json::to_string(&list(&given)).unwrap(), serde_json::to_string(&given).unwrap());
    }
}
