//! The rule for which members must sign in with the organization's provider, if the organization requires
//! sign-ons.

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
    /// The issuer of the connection that opened the session.
    pub issuer: Option<&'a str>,
}

/// Returns the organization's provider that the member must sign in with; `None` if the session already meets
/// the requirement. Owners can use any sign-in method, so that a failing provider doesn't lock everyone out.
/// Other members must use a provider that has their address in its domains, or whose sign-on created the
/// membership, regardless of their address.
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
            // Neither another address nor a provider without domains avoids the requirement for a managed
            // member.
            (Member, "ada@other.test", Some("acme"), None, Some("acme")),
            (Member, "ada@other.test", Some("bare"), None, Some("bare")),
            (Member, "ada@other.test", Some("gone"), None, None),
            // The member must use one of their own providers.
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
