//! E-mail addresses: when two addresses are equal, and which addresses can receive mail.

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use lettre::Address;
use lettre::message::Mailbox;

use super::texts;

/// Maximum length of a domain (RFC 1035, section 2.3.4), at four bytes per character.
const MAX_DOMAIN_BYTES: usize = 4 * 253;

/// Returns the form in which two addresses are compared.
///
/// The domain is mapped by UTS 46 without its transitional rules and written in Unicode: `xn--…` equals the
/// letters that it encodes, while `οδοσ.gr` and `οδος.gr` differ, as they do in the DNS. The part before the
/// `@` is folded like any name ([`texts::fold`]). An invalid domain, which earlier versions accepted, is
/// folded in the same way.
pub fn fold(address: &str) -> String {
    let Some((local, domain)) = address.rsplit_once('@') else {
        return texts::fold(address);
    };
    let domain = unicode_domain(domain).unwrap_or_else(|| texts::fold(domain));
    format!("{}@{domain}", texts::fold(local))
}

/// The mailbox that an address most likely belongs to: the address folded by [`fold`], without quotes and
/// without the tag that many servers ignore. `"ada"@example.com`, `Ada+shop@example.com` and
/// `ada@example.com` have the same mailbox.
///
/// Use it only for counting, such as limits per mailbox. Never use it to identify the owner of an account,
/// because on some servers these addresses belong to different people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlainMailbox(String);

impl PlainMailbox {
    /// Returns the mailbox of an address.
    pub fn of(address: &str) -> Self {
        let folded = fold(address);
        let Some((local, domain)) = folded.rsplit_once('@') else {
            return Self(folded);
        };
        let unquoted: String = local.chars().filter(|c| !matches!(c, '"' | '\\')).collect();
        let untagged = unquoted.split_once('+').map_or(unquoted.as_str(), |(name, _)| name);
        match (untagged, unquoted.as_str()) {
            ("", "") => Self(folded),
            ("", whole) => Self(format!("{whole}@{domain}")),
            (name, _) => Self(format!("{name}@{domain}")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn unicode_domain(domain: &str) -> Option<String> {
    if domain.len() > MAX_DOMAIN_BYTES {
        return None;
    }
    let (mapped, outcome) = Uts46::new().to_unicode(domain.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    outcome.is_ok().then(|| mapped.into_owned())
}

/// Returns `true` if mail can be sent to the address: its domain is valid in the DNS, and the library that
/// composes e-mails writes the address so that it parses as the same one, except for needless quotes.
pub fn can_get_mail(address: &str) -> bool {
    let Ok(to) = address.parse::<Address>() else {
        return false;
    };
    let in_dns = Uts46::new().to_ascii(
        to.domain().as_bytes(),
        AsciiDenyList::EMPTY,
        Hyphens::Allow,
        DnsLength::Verify,
    );
    if in_dns.is_err() {
        return false;
    }
    let mailbox = Mailbox::new(None, to.clone());
    let mail = lettre::Message::builder().from(mailbox.clone()).to(mailbox).body(String::new());
    let same = |read: &Address| {
        read.domain() == to.domain()
            && (read.user() == to.user() || format!("\"{}\"", read.user()) == to.user())
    };
    mail.is_ok_and(|mail| matches!(mail.envelope().to(), [read] if same(read)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_compare_as_in_the_dns() {
        for (one, other) in [
            ("Ada@Example.ORG", "ada@example.org"),
            ("a@οδος.gr", "a@xn--pxavbm.gr"),
            ("a@ΟΔΟς.gr", "a@οδος.GR"),
            ("a@bücher.example", "a@xn--bcher-kva.example"),
            ("a@BÜCHER.example", "a@XN--BCHER-KVA.example"),
            ("a@straße.example", "a@xn--strae-oqa.example"),
            ("a@例子\u{3002}广告", "a@例子.广告"),
            // Before the `@`, a capital sigma equals both small sigmas.
            ("ΟΔΟΣ@example.org", "οδος@example.org"),
            ("οδοσ@example.org", "οδος@example.org"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
            assert_eq!(fold(&fold(one)), fold(one), "{one}");
        }
        for (one, other) in [
            ("a@οδοσ.gr", "a@οδος.gr"),
            ("a@xn--pxavbq.gr", "a@xn--pxavbm.gr"),
            ("a@strasse.example", "a@straße.example"),
            ("a@example.org", "a@example.com"),
        ] {
            assert_ne!(fold(one), fold(other), "{one} {other}");
        }
    }

    #[test]
    fn ordinary_addresses_fold_like_names() {
        for address in [
            "Ada.Lovelace+tag@Mail.Example.ORG",
            "root@localhost",
            "\"quoted\"@example.org",
            "用户@例子.广告",
            "Dörte@Sörensen.example.com",
            "J@r3---sn-4g5e.example.com",
            "Kai@\u{212a}ai.example",
            "no address at all",
            "",
            "a@xn--a.example",
        ] {
            assert_eq!(fold(address), texts::fold(address), "{address}");
        }
    }

    #[test]
    fn tags_and_quotes_are_of_one_mailbox() {
        for (address, mailbox) in [
            ("ada@example.com", "ada@example.com"),
            ("Ada+Shop@Example.COM", "ada@example.com"),
            ("ada+a+b@example.com", "ada@example.com"),
            ("ada+@example.com", "ada@example.com"),
            ("\"ada\"@example.com", "ada@example.com"),
            ("\"a\\da+b\"@example.com", "ada@example.com"),
            ("\"ada\"+b@example.com", "ada@example.com"),
            ("a.da@example.com", "a.da@example.com"),
            ("ada@xn--bcher-kva.example", "ada@bücher.example"),
            // If no name precedes it, `+…` is the name.
            ("+ada@example.com", "+ada@example.com"),
            ("\"+\"@example.com", "+@example.com"),
            ("\"\"@example.com", "\"\"@example.com"),
            ("no address+at all", "no address+at all"),
        ] {
            assert_eq!(PlainMailbox::of(address).as_str(), mailbox, "{address}");
            assert_eq!(PlainMailbox::of(mailbox).as_str(), mailbox, "{mailbox}");
        }
    }

    #[test]
    fn unreachable_addresses_are_refused() {
        for (address, can) in [
            ("ada@example.org", true),
            ("ada@localhost", true),
            ("o'brien+tag@example.org", true),
            ("用户@例子.广告", true),
            ("Dörte@Sörensen.example.com", true),
            ("maria@οδος.gr", true),
            ("\"quoted\"@example.org", true),
            ("\"a,b\"@example.com", false),
            ("\"a@b\"@example.com", false),
            ("\"a;b\"@example.com", false),
            ("a@xn--a.example", false),
            ("a@xn--\u{fc}.example", false),
            ("ada", false),
        ] {
            assert_eq!(can_get_mail(address), can, "{address}");
        }
    }

    proptest::proptest! {
        #[test]
        fn unicode_domain_is_idempotent(text: String) {
            fold(&text);
            can_get_mail(&text);
            if let Some(domain) = unicode_domain(&text) {
                proptest::prop_assert_eq!(unicode_domain(&domain), Some(domain));
            }
        }
    }
}
