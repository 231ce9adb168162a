//! The settings of a provider in the providers file.

use std::collections::BTreeMap;

use kernel::addresses;
use kernel::ids::OrganizationId;
use kernel::secrets::Secret;

/// The configuration of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The provider's name in paths.
    pub id: String,
    /// The provider's name on buttons.
    pub name: String,
    pub kind: Kind,
    /// The issuer, exactly as in tokens.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
    /// The folded domains of e-mail addresses for which the provider is authoritative.
    pub domains: Vec<String>,
    /// The memberships that sign-ons create, if any.
    pub membership: Option<Membership>,
    /// The users who get an account at their first sign-on.
    pub provision: Provision,
    /// The rule for a user whose address already has an account.
    pub link: Link,
    /// `true` if the claim `email_verified` may be the string `"true"`.
    pub takes_verified_as_text: bool,
    /// `true` if a second factor at the provider is also accepted here.
    pub trusts_second_factor: bool,
    /// The values of `acr` that mean a second factor.
    pub acr_values: Vec<String>,
    /// The lifetime of sessions that the provider opens, in hours.
    pub session_hours: u32,
    /// `true` if the provider may sign users out with logout tokens.
    pub takes_logouts: bool,
    /// `true` if logout tokens may have a type other than `logout+jwt`.
    pub takes_any_logout_type: bool,
}

/// The protocol of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    OpenId,
    GitHub,
}

/// The memberships that a sign-on creates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    pub organization_id: OrganizationId,
    /// The role of a user whose groups have no role.
    pub default_role: Role,
    /// The claim with the user's groups, if roles depend on groups.
    pub groups_claim: Option<String>,
    /// The role of each group.
    pub roles: BTreeMap<String, Role>,
    /// `true` if only users with a group that has a role are members.
    pub is_exclusive: bool,
}

/// A role in an organization, from the lowest to the highest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    Member,
    Admin,
    Owner,
}

/// The users who get an account at their first sign-on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provision {
    /// No one.
    None,
    /// Users with an open invitation.
    Invited,
    /// Users with a verified address in `domains`.
    Domain,
    /// Users with a verified address.
    Any,
}

/// The rule for the first sign-on of a user whose address already has an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The user must first sign in to the account with another method.
    Confirm,
    /// The account is connected without confirmation if the provider is authoritative for the address.
    VerifiedEmail,
}

/// The issuer of Google. Its claim `hd` contains a domain that Google hosts, for which it is authoritative.
const GOOGLE: &str = "https://accounts.google.com";

impl Settings {
    /// Returns `true` if an address is in one of the domains.
    pub fn covers(&self, email: &str) -> bool {
        domain_of(email).is_some_and(|domain| self.domains.contains(&domain))
    }

    /// Returns `true` if the provider is authoritative for an address: it is in one of the provider's
    /// domains, or Google hosts its domain.
    pub fn speaks_for(&self, email: &str, hosted_domain: Option<&str>) -> bool {
        let is_hosted = || {
            let hosted = hosted_domain.filter(|_| self.issuer == GOOGLE).and_then(fold_domain);
            hosted.is_some() && hosted == domain_of(email)
        };
        self.covers(email) || is_hosted()
    }

    /// Returns `true` if the issuer is Google's.
    pub(crate) fn is_google(&self) -> bool {
        self.issuer == GOOGLE
    }
}

/// Returns the folded domain of an address.
fn domain_of(email: &str) -> Option<String> {
    addresses::fold(email).rsplit_once('@').map(|(_, domain)| domain.to_owned())
}

/// Returns the folded domain, for comparisons; `None` if the text isn't a domain.
pub(crate) fn fold_domain(domain: &str) -> Option<String> {
    let address = format!("a@{domain}");
    let is_domain = domain.contains('.') && !domain.contains('@') && addresses::can_get_mail(&address);
    is_domain.then(|| domain_of(&address)).flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a provider with this issuer and these domains.
    pub(crate) fn settings(issuer: &str, domains: &[&str]) -> Settings {
        Settings {
            id: "acme".to_owned(),
            name: "Acme".to_owned(),
            kind: Kind::OpenId,
            issuer: issuer.to_owned(),
            client_id: "tollkeeper".to_owned(),
            client_secret: Secret::new("secret"),
            scopes: vec!["openid".to_owned()],
            domains: domains.iter().map(|domain| fold_domain(domain).unwrap()).collect(),
            membership: None,
            provision: Provision::None,
            link: Link::Confirm,
            takes_verified_as_text: false,
            trusts_second_factor: false,
            acr_values: Vec::new(),
            session_hours: 12,
            takes_logouts: false,
            takes_any_logout_type: false,
        }
    }

    #[test]
    fn a_provider_speaks_for_its_domains_only() {
        let acme = settings("https://id.example.com", &["Example.com", "münchen.de"]);
        for (email, expected) in [
            ("ada@example.com", true),
            ("ada@EXAMPLE.COM", true),
            ("ada@xn--mnchen-3ya.de", true),
            ("ada@mail.example.com", false),
            ("ada@notexample.com", false),
            ("example.com", false),
            ("\"a@example.com\"@evil.org", false),
        ] {
            assert_eq!(acme.speaks_for(email, None), expected, "{email}");
            // Only Google uses `hd` for this.
            assert_eq!(acme.speaks_for(email, Some("mail.example.com")), expected, "{email}");
        }
        let google = settings(GOOGLE, &[]);
        assert!(google.speaks_for("ada@example.com", Some("example.com")));
        assert!(!google.speaks_for("ada@gmail.com", None));
        assert!(!google.speaks_for("ada@example.com", Some("example.org")));
        assert!(!google.covers("ada@example.com"));
    }
}
