//! GitHub, which supports OAuth but not OpenID Connect. The user's data is read from its API.

use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, NoResponse};
use crate::identity::Identity;
use crate::settings::Settings;
use kernel::naming;

/// The URLs of GitHub, or of a GitHub Enterprise Server.
pub(crate) struct Addresses {
    pub(crate) authorization: String,
    pub(crate) token: String,
    api: String,
}

impl Addresses {
    pub(crate) fn of(settings: &Settings) -> Self {
        let root = settings.issuer.trim_end_matches('/');
        let api = if root == "https://github.com" {
            "https://api.github.com".to_owned()
        } else {
            format!("{root}/api/v3")
        };
        Self {
            authorization: format!("{root}/login/oauth/authorize"),
            token: format!("{root}/login/oauth/access_token"),
            api,
        }
    }
}

#[derive(Deserialize)]
struct User {
    /// The number of the account, which never changes. Another user can take over its name.
    id: u64,
    login: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Email {
    email: String,
    #[serde(default)]
    primary: bool,
    #[serde(default)]
    verified: Value,
}

/// Reads the user who granted an access token. Only the user's primary e-mail address is used, if it is
/// verified.
pub(crate) async fn ask(
    client: &Client,
    settings: &Settings,
    addresses: &Addresses,
    access_token: &str,
) -> Result<Identity, NoResponse> {
    let read =
        async |path: &str| client.get_json(&format!("{}{path}", addresses.api), Some(access_token)).await;
    let unknown = |error: serde_json::Error| NoResponse(format!("the user's data can't be read: {error}"));
    let user: User = serde_json::from_slice(&read("/user").await?).map_err(unknown)?;
    let emails: Vec<Email> = serde_json::from_slice(&read("/user/emails").await?).map_err(unknown)?;
    let primary = emails.into_iter().find(|email| email.primary && email.verified == Value::Bool(true));
    let email = primary.map(|email| email.email).filter(|email| naming::email(email).is_ok());
    Ok(Identity {
        issuer: settings.issuer.clone(),
        subject: user.id.to_string(),
        is_email_verified: email.is_some(),
        email,
        hosted_domain: None,
        username: user.login,
        full_name: user.name.filter(|name| naming::full_name(name).is_ok()),
        groups: None,
        has_passed_second_factor: false,
        authenticated_at: None,
    })
}
