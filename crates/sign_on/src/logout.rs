//! Logout tokens, with which a provider signs users out (OpenID Connect Back-Channel Logout 1.0).

use serde_json::{Map, Value};

use crate::identity::is_subject;

/// The event that a logout token must contain.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The contents of a logout token: the user whose sessions end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logout {
    pub issuer: String,
    pub subject: String,
    /// The id of the token, which is valid only once.
    pub token_id: String,
}

impl Logout {
    /// Reads the claims of a verified token.
    pub(crate) fn of_claims(issuer: &str, claims: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| is_subject(text));
        if !claims.get("events").and_then(|events| events.get(EVENT)).is_some_and(Value::is_object) {
            return Err("it isn't about a logout (`events`)");
        }
        if claims.contains_key("nonce") {
            return Err("it has a nonce");
        }
        let subject = text("sub").ok_or("it has no subject (`sub`)")?.to_owned();
        let token_id = text("jti").ok_or("it has no id (`jti`)")?.to_owned();
        Ok(Self { issuer: issuer.to_owned(), subject, token_id })
    }
}
