//! The members who have to sign in with an organization's provider, where the organization requires it.

use crate::roles::OrganizationRole;
use sign_on::settings::Settings;

/// A member and their current session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing<'a> {
    pub role: OrganizationRole,
    /// The address of the member's account.
    pub email: &'a str,
    /// The provider whose sign-ons created the membership.
    pub managed_by: Option<&'a str>,
    /// The issuer of the connection that has opened the session.
    pub issuer: Option<&'a str>,
}

/// Returns which of the organization's providers the member has to sign in with; `None` if the session meets
/// the requirement. Owners keep their other sign-in methods, so that a failing provider locks no one out. A
/// provider is a member's provider if their address is in its domains, or its sign-on created the membership:
/// another address changes nothing then.
pub fn missing<'p>(
    standing: &Standing<'_>,
    providers: impl IntoIterator<Item = &'p Settings>,
) -> Option<&'p Settings> {
    if standing.role == OrganizationRole::Owner {
        return None;
    }
    let is_of_member = |provider: &&Settings| {
        provider.covers(standing.email) || standing.managed_by == Some(provider.id.as_str())
    };
    let of_member: Vec<_> = providers.into_iter().filter(is_of_member).collect();
    let is_good = of_member.iter().any(|provider| standing.issuer == Some(provider.issuer.as_str()));
    of_member.into_iter().next().filter(|_| !is_good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::secrets::Secret;
    use sign_on::settings::{Kind, Link, Provision};

    fn provider(id: &str, domains: &[&str]) -> Settings {
        Settings {
            id: id.to_owned(),
            name: id.to_owned(),
            kind: Kind::OpenId,
            issuer: format!("https://{id}.test"),
            client_id: "tollkeeper".to_owned(),
            client_secret: Secret::new("secret"),
            scopes: Vec::new(),
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
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
    fn members_of_the_domains_need_a_session_of_the_provider() {
        use OrganizationRole::{Admin, Member, Owner};
        let (acme, labs) = (provider("acme", &["acme.test"]), provider("labs", &["labs.test", "acme.test"]));
        let bare = provider("bare", &[]);
        let all = [&acme, &labs, &bare];
        for (role, email, managed_by, issuer, expected) in [
            (Member, "ada@acme.test", None, None, Some("acme")),
            (Admin, "ada@ACME.test", None, None, Some("acme")),
            (Member, "ada@labs.test", None, None, Some("labs")),
            (Member, "ada@other.test", None, None, None),
            (Member, "ada@mail.acme.test", None, None, None),
            // Another address is no way around, nor is a provider without domains.
            (Member, "ada@other.test", Some("acme"), None, Some("acme")),
            (Member, "ada@other.test", Some("bare"), None, Some("bare")),
            (Member, "ada@other.test", Some("gone"), None, None),
            // The member needs one of their providers; others don't count.
            (Member, "ada@acme.test", None, Some("https://acme.test"), None),
            (Member, "ada@acme.test", None, Some("https://labs.test"), None),
            (Member, "ada@acme.test", None, Some("https://bare.test"), Some("acme")),
            (Member, "ada@labs.test", None, Some("https://acme.test"), Some("labs")),
            (Member, "ada@acme.test", None, Some("https://evil.test"), Some("acme")),
            (Owner, "ada@acme.test", Some("acme"), None, None),
        ] {
            let standing = Standing { role, email, managed_by, issuer };
            let found = missing(&standing, all).map(|provider| provider.id.as_str());
            assert_eq!(found, expected, "{standing:?}");
        }
        let standing = Standing { role: Member, email: "ada@acme.test", managed_by: None, issuer: None };
        assert_eq!(missing(&standing, []), None);
    }
}
