//! The documents of an OpenID provider: its metadata and its keys.

use http::Uri;
use openidconnect::core::{CoreJsonWebKeySet, CoreProviderMetadata};
use serde::Deserialize;

use crate::client::{Client, NoResponse, check_safe};
use crate::settings::{Kind, Settings};
use kernel::hosts;

/// The metadata of a provider, with its keys.
pub(crate) struct Documents {
    pub(crate) authorization_endpoint: String,
    pub(crate) token_endpoint: String,
    jwks_uri: String,
    /// `true` if the client's secret is sent in the body of the token request.
    pub(crate) takes_secret_in_body: bool,
    /// `true` if every authorization response contains the issuer (RFC 9207).
    pub(crate) names_issuer: bool,
    pub(crate) keys: CoreJsonWebKeySet,
}

/// Checks that the documents of a provider can be read, before the provider is used.
///
/// # Errors
/// The documents can't be read, or aren't valid. The error is a sentence for the operator.
pub async fn check(settings: &Settings) -> Result<(), String> {
    match settings.kind {
        Kind::OpenId => {
            let fetched = Documents::fetch(&Client::new(true)?, &settings.issuer).await;
            fetched.map(drop).map_err(|why| why.to_string())
        }
        // GitHub has no documents.
        Kind::GitHub => Ok(()),
    }
}

/// The metadata fields that [`CoreProviderMetadata`] lacks or parses differently.
#[derive(Deserialize)]
struct More {
    issuer: String,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl Documents {
    /// Reads the metadata of an issuer, and its keys.
    ///
    /// # Errors
    /// The documents can't be read, or belong to another issuer.
    pub(crate) async fn fetch(client: &Client, issuer: &str) -> Result<Self, NoResponse> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let text = client.get_json(&url, None).await?;
        let no_metadata =
            |error: serde_json::Error| NoResponse(format!("{url} isn't the metadata of a provider: {error}"));
        let more: More = serde_json::from_slice(&text).map_err(no_metadata)?;
        if more.issuer != issuer {
            let found = more.issuer.escape_debug();
            return Err(NoResponse(format!("{url} belongs to another issuer, {found}")));
        }
        let metadata: CoreProviderMetadata = serde_json::from_slice(&text).map_err(no_metadata)?;
        let token_endpoint = metadata.token_endpoint().map(|url| url.url().to_string());
        let token_endpoint =
            token_endpoint.ok_or_else(|| NoResponse(format!("{url} has no `token_endpoint`")))?;
        let methods = more.token_endpoint_auth_methods_supported.unwrap_or_default();
        let takes = |method: &str| methods.iter().any(|other| other == method);
        let mut documents = Self {
            authorization_endpoint: metadata.authorization_endpoint().url().to_string(),
            token_endpoint,
            jwks_uri: metadata.jwks_uri().url().to_string(),
            takes_secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
            names_issuer: more.authorization_response_iss_parameter_supported,
            keys: CoreJsonWebKeySet::new(Vec::new()),
        };
        let is_loopback = |url: &Uri| url.host().is_some_and(hosts::is_loopback);
        let is_local = issuer.parse().is_ok_and(|issuer: Uri| is_loopback(&issuer));
        for endpoint in [&documents.authorization_endpoint, &documents.token_endpoint, &documents.jwks_uri] {
            let uri: Uri = endpoint
                .parse()
                .map_err(|_| NoResponse(format!("{url} has an endpoint that isn't a URL")))?;
            check_safe(&uri)?;
            // Only a provider on this machine may have endpoints on this machine.
            if is_loopback(&uri) && !is_local {
                return Err(NoResponse(format!("{url} names an endpoint on this machine")));
            }
        }
        documents.keys = documents.fetch_keys(client).await?;
        Ok(documents)
    }

    /// Reads the provider's keys.
    ///
    /// # Errors
    /// The keys can't be read.
    pub(crate) async fn fetch_keys(&self, client: &Client) -> Result<CoreJsonWebKeySet, NoResponse> {
        let text = client.get_json(&self.jwks_uri, None).await?;
        serde_json::from_slice(&text)
            .map_err(|error| NoResponse(format!("{} isn't a key set: {error}", self.jwks_uri)))
    }

    /// Returns the same documents with different keys.
    pub(crate) fn with_keys(&self, keys: CoreJsonWebKeySet) -> Self {
        Self {
            authorization_endpoint: self.authorization_endpoint.clone(),
            token_endpoint: self.token_endpoint.clone(),
            jwks_uri: self.jwks_uri.clone(),
            takes_secret_in_body: self.takes_secret_in_body,
            names_issuer: self.names_issuer,
            keys,
        }
    }
}
