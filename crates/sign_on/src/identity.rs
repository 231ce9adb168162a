//! The identity of a provider's user, read from verified claims.

use serde_json::{Map, Value};

use crate::settings::Settings;
use kernel::clock::{SECOND_MS, Time};
use kernel::naming;

/// The maximum length of a subject (OpenID Connect Core, section 2).
const MAX_SUBJECT_CHARS: usize = 255;
/// The maximum number of groups that are read.
const MAX_GROUPS: usize = 2_000;

/// A user of a provider. The issuer and the subject identify the user; everything else may change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub issuer: String,
    pub subject: String,
    /// The e-mail address, if it is valid.
    pub email: Option<String>,
    /// `true` if the provider claims that the address belongs to the user.
    pub is_email_verified: bool,
    /// The domain that Google hosts for the user's organization.
    pub hosted_domain: Option<String>,
    /// The user's preferred username.
    pub username: Option<String>,
    pub full_name: Option<String>,
    /// The user's groups. `None` means that the provider doesn't report groups, and an empty list means that
    /// the user has no groups.
    pub groups: Option<Vec<String>>,
    /// `true` if the user has passed a second factor at the provider, and the settings trust it.
    pub has_passed_second_factor: bool,
    /// The time at which the user authenticated at the provider, if the provider reports it.
    pub authenticated_at: Option<Time>,
}

impl Identity {
    /// Reads the claims of a verified token; `None` if they have no valid subject.
    pub(crate) fn of_claims(settings: &Settings, claims: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        let subject = text("sub").filter(|subject| is_subject(subject))?;
        let email = text("email").filter(|email| naming::email(email).is_ok());
        let is_verified = match claims.get("email_verified") {
            Some(Value::Bool(is_verified)) => *is_verified,
            Some(Value::String(text)) => settings.takes_verified_as_text && text == "true",
            _ => false,
        };
        let claim = settings.membership.as_ref().and_then(|membership| membership.groups_claim.as_deref());
        Some(Self {
            issuer: settings.issuer.clone(),
            subject,
            is_email_verified: is_verified && email.is_some(),
            email,
            hosted_domain: text("hd"),
            username: text("preferred_username"),
            full_name: text("name").filter(|name| naming::full_name(name).is_ok()),
            groups: claim.and_then(|claim| groups(claims, claim)),
            has_passed_second_factor: settings.trusts_second_factor && passed_second_factor(settings, claims),
            authenticated_at: claims
                .get("auth_time")
                .and_then(Value::as_i64)
                .map(|seconds| Time::from_unix_ms(seconds.saturating_mul(SECOND_MS))),
        })
    }
}

/// Returns `true` if a subject is valid: 1 to 255 characters without control characters.
pub(crate) fn is_subject(subject: &str) -> bool {
    (1..=MAX_SUBJECT_CHARS).contains(&subject.chars().count()) && !subject.chars().any(char::is_control)
}

/// Returns the groups in a claim, which may be nested in another claim, such as `realm_access.roles`.
fn groups(claims: &Map<String, Value>, claim: &str) -> Option<Vec<String>> {
    let value = claims.get(claim).or_else(|| {
        let (outer, inner) = claim.split_once('.')?;
        inner.split('.').try_fold(claims.get(outer)?, |value, name| value.get(name))
    })?;
    match value {
        Value::String(group) => Some(vec![group.clone()]),
        Value::Array(items) => {
            Some(items.iter().filter_map(Value::as_str).take(MAX_GROUPS).map(str::to_owned).collect())
        }
        _ => None,
    }
}

/// Returns `true` if the authentication methods (RFC 8176) or the authentication context class show that two
/// factors were used.
fn passed_second_factor(settings: &Settings, claims: &Map<String, Value>) -> bool {
    let methods: Vec<&str> = match claims.get("amr") {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has = |method: &str| methods.contains(&method);
    // A hardware key counts as two factors, and so does a software key that is unlocked by a PIN or the
    // user's presence.
    let is_by_methods = has("mfa") || has("hwk") || (has("swk") && (has("pin") || has("user")));
    let class = claims.get("acr").and_then(Value::as_str);
    is_by_methods || class.is_some_and(|class| settings.acr_values.iter().any(|value| value == class))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::settings::tests::settings;
    use crate::settings::{Membership, Role};
    use kernel::ids::OrganizationId;

    fn read(settings: &Settings, claims: &Value) -> Option<Identity> {
        Identity::of_claims(settings, claims.as_object().unwrap())
    }

    #[test]
    fn an_address_is_verified_by_the_boolean_true_only() {
        let acme = settings("https://id.example.com", &[]);
        let texts = Settings { takes_verified_as_text: true, ..acme.clone() };
        for (verified, strict, lenient) in [
            (json!(true), true, true),
            (json!("true"), false, true),
            (json!("yes"), false, false),
            (json!("True"), false, false),
            (json!(1), false, false),
            (json!(null), false, false),
            (json!(false), false, false),
            (json!([true]), false, false),
        ] {
            let claims = json!({"sub": "1", "email": "ada@example.com", "email_verified": verified});
            assert_eq!(read(&acme, &claims).unwrap().is_email_verified, strict, "{claims}");
            assert_eq!(read(&texts, &claims).unwrap().is_email_verified, lenient, "{claims}");
        }
        let claims = json!({"sub": "1", "email": "Ada <ada@example.com>", "email_verified": true});
        let identity = read(&acme, &claims).unwrap();
        assert_eq!((identity.email, identity.is_email_verified), (None, false));
    }

    #[test]
    fn a_subject_is_a_text_of_255_characters_at_most() {
        let acme = settings("https://id.example.com", &[]);
        for (subject, is_good) in [
            (json!("1"), true),
            (json!("x".repeat(255)), true),
            (json!("x".repeat(256)), false),
            (json!(""), false),
            (json!(1), false),
            (json!(null), false),
            (json!("a\u{0}b"), false),
        ] {
            assert_eq!(read(&acme, &json!({"sub": subject})).is_some(), is_good, "{subject}");
        }
        assert!(read(&acme, &json!({})).is_none());
    }

    #[test]
    fn absent_groups_arent_empty_ones() {
        let membership = |claim: &str| {
            Some(Membership {
                organization_id: OrganizationId::parse("org_01hzzzzzzzzzzzzzzzzzzzzzzz").unwrap(),
                default_role: Role::Member,
                groups_claim: Some(claim.to_owned()),
                roles: BTreeMap::new(),
                is_exclusive: false,
            })
        };
        let flat = Settings { membership: membership("groups"), ..settings("https://id.example.com", &[]) };
        let nested = Settings { membership: membership("realm_access.roles"), ..flat.clone() };
        let url = Settings { membership: membership("https://acme.example/groups"), ..flat.clone() };
        let some = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (settings, claims, expected) in [
            (&flat, json!({"sub": "1"}), None),
            (&flat, json!({"sub": "1", "groups": null}), None),
            (&flat, json!({"sub": "1", "groups": {"a": true}}), None),
            (&flat, json!({"sub": "1", "_claim_names": {"groups": "src1"}}), None),
            (&flat, json!({"sub": "1", "groups": []}), some(&[])),
            (&flat, json!({"sub": "1", "groups": "a"}), some(&["a"])),
            (&flat, json!({"sub": "1", "groups": ["a", 1, "b"]}), some(&["a", "b"])),
            (&nested, json!({"sub": "1", "realm_access": {"roles": ["a"]}}), some(&["a"])),
            (&nested, json!({"sub": "1", "realm_access": 3}), None),
            (&url, json!({"sub": "1", "https://acme.example/groups": ["a"]}), some(&["a"])),
        ] {
            assert_eq!(read(settings, &claims).unwrap().groups, expected, "{claims}");
        }
    }

    #[test]
    fn a_second_factor_counts_only_where_it_is_trusted() {
        let acme = settings("https://id.example.com", &[]);
        let trusting =
            Settings { trusts_second_factor: true, acr_values: vec!["gold".to_owned()], ..acme.clone() };
        for (claims, expected) in [
            (json!({"sub": "1", "amr": ["pwd", "mfa"]}), true),
            (json!({"sub": "1", "amr": ["hwk"]}), true),
            (json!({"sub": "1", "amr": ["swk", "pin"]}), true),
            (json!({"sub": "1", "amr": ["swk"]}), false),
            (json!({"sub": "1", "amr": ["pwd", "otp"]}), false),
            (json!({"sub": "1", "amr": "mfa"}), false),
            (json!({"sub": "1", "acr": "gold"}), true),
            (json!({"sub": "1", "acr": "silver"}), false),
            (json!({"sub": "1"}), false),
        ] {
            assert_eq!(read(&trusting, &claims).unwrap().has_passed_second_factor, expected, "{claims}");
            assert!(!read(&acme, &claims).unwrap().has_passed_second_factor);
        }
    }
}
