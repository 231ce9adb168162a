//! What the providers file says about a provider.

use std::collections::BTreeMap;

use kernel::addresses;
use kernel::ids::OrganizationId;
use kernel::secrets::Secret;

/// A provider, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name in paths.
    pub id: String,
    /// Its name on buttons.
    pub name: String,
    pub kind: Kind,
    /// The issuer, exactly as tokens name it.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
    /// The domains of e-mail addresses for which the provider speaks, folded.
    pub domains: Vec<String>,
    /// The organization whose members sign in with it.
    pub membership: Option<Membership>,
    /// Who gets an account.
    pub provision: Provision,
    /// What happens if an account has the person's address.
    pub link: Link,
    /// `true` if `email_verified` may be the text `"true"`.
    pub takes_verified_as_text: bool,
    /// `true` if a second factor at the provider counts here.
    pub trusts_second_factor: bool,
    /// The values of `acr` that mean a second factor.
    pub acr_values: Vec<String>,
    /// How long its sessions live, in hours.
    pub session_hours: u32,
    /// `true` if it may end sessions.
    pub takes_logouts: bool,
    /// `true` if the type of its logout tokens may be another than `logout+jwt`.
    pub takes_any_logout_type: bool,
}

/// The protocol of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    OpenId,
    GitHub,
}

/// The memberships that sign-on makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    pub organization_id: OrganizationId,
    /// The role without a group that has another one.
    pub default_role: Role,
    /// The claim with the person's groups, if roles depend on them.
    pub groups_claim: Option<String>,
    /// Roles by group.
    pub roles: BTreeMap<String, Role>,
    /// `true` if the membership ends without a group that has a role.
    pub is_exclusive: bool,
}

/// A role in an organization, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    Member,
    Admin,
    Owner,
}

/// Who gets an account at the first sign-on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provision {
    /// Nobody.
    None,
    /// Who has been invited.
    Invited,
    /// Who has a verified address in `domains`.
    Domain,
    /// Who has a verified address.
    Any,
}

/// What happens at the first sign-on if an account has the person's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The person signs in in another way first.
    Confirm,
    /// They are linked if the provider speaks for the address.
    VerifiedEmail,
}

/// The issuer of Google, whose claim `hd` says that it speaks for a domain.
const GOOGLE: &str = "https://accounts.google.com";

impl Settings {
    /// Returns `true` if an address is in one of the domains.
    pub fn covers(&self, email: &str) -> bool {
        domain_of(email).is_some_and(|domain| self.domains.contains(&domain))
    }

    /// Returns `true` if the provider speaks for an address: it is in one of the domains, or Google hosts its domain.
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

/// Returns the form in which domains are compared; `None` for what isn't one.
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
            // Only Google says so with `hd`.
            assert_eq!(acme.speaks_for(email, Some("mail.example.com")), expected, "{email}");
        }
        let google = settings(GOOGLE, &[]);
        assert!(google.speaks_for("ada@example.com", Some("example.com")));
        assert!(!google.speaks_for("ada@gmail.com", None));
        assert!(!google.speaks_for("ada@example.com", Some("example.org")));
        assert!(!google.covers("ada@example.com"));
    }
}
