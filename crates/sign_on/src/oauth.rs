//! The authorization code flow of OAuth 2.0 with PKCE, which is used for OpenID Connect and GitHub.

use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, Client as OAuthClient, ClientId, ClientSecret, CsrfToken,
    EndpointNotSet, EndpointSet, ExtraTokenFields, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl,
    RequestTokenError, Scope, StandardRevocableToken, StandardTokenResponse, TokenUrl,
};
use serde::{Deserialize, Serialize};

use crate::client::{Client, NoResponse};
use crate::secrets::Secrets;
use crate::settings::Settings;

/// The fields of a response in addition to the access token.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct MoreFields {
    /// The encoded ID token.
    pub(crate) id_token: Option<String>,
}

impl std::fmt::Debug for MoreFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl ExtraTokenFields for MoreFields {}

/// The response of the token endpoint.
pub(crate) type Tokens = StandardTokenResponse<MoreFields, BasicTokenType>;

type CodeClient = OAuthClient<
    BasicErrorResponse,
    Tokens,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// The endpoints of a provider.
pub(crate) struct Endpoints<'a> {
    pub(crate) authorization: &'a str,
    pub(crate) token: &'a str,
    pub(crate) takes_secret_in_body: bool,
}

fn client(settings: &Settings, endpoints: &Endpoints<'_>, callback: &str) -> Result<CodeClient, NoResponse> {
    let no_url = |error: openidconnect::url::ParseError| NoResponse(error.to_string());
    let auth_type = if endpoints.takes_secret_in_body { AuthType::RequestBody } else { AuthType::BasicAuth };
    Ok(OAuthClient::new(ClientId::new(settings.client_id.clone()))
        .set_client_secret(ClientSecret::new(settings.client_secret.expose().to_owned()))
        .set_auth_type(auth_type)
        .set_auth_uri(AuthUrl::new(endpoints.authorization.to_owned()).map_err(no_url)?)
        .set_token_uri(TokenUrl::new(endpoints.token.to_owned()).map_err(no_url)?)
        .set_redirect_uri(RedirectUrl::new(callback.to_owned()).map_err(no_url)?))
}

/// Returns the link to the provider's sign-in page.
pub(crate) fn authorization_url(
    settings: &Settings,
    endpoints: &Endpoints<'_>,
    callback: &str,
    secrets: &Secrets,
    more: &[(&'static str, &str)],
) -> Result<String, NoResponse> {
    let client = client(settings, endpoints, callback)?;
    let verifier = PkceCodeVerifier::new(secrets.verifier.clone());
    let mut request = client
        .authorize_url(|| CsrfToken::new(secrets.state.clone()))
        .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
        .add_scopes(settings.scopes.iter().cloned().map(Scope::new));
    for (name, value) in more {
        request = request.add_extra_param(*name, *value);
    }
    Ok(request.url().0.into())
}

/// Exchanges a code for tokens.
///
/// # Errors
/// The provider refuses the code, or doesn't respond. The error contains no secrets.
pub(crate) async fn exchange(
    http: &Client,
    settings: &Settings,
    endpoints: &Endpoints<'_>,
    callback: &str,
    secrets: &Secrets,
    code: &str,
) -> Result<Tokens, ExchangeError> {
    let client = client(settings, endpoints, callback).map_err(ExchangeError::Unavailable)?;
    let request = client
        .exchange_code(AuthorizationCode::new(code.to_owned()))
        .set_pkce_verifier(PkceCodeVerifier::new(secrets.verifier.clone()));
    request.request_async(http).await.map_err(|error| match error {
        RequestTokenError::ServerResponse(answer) => {
            let refusal: &str = answer.error().as_ref();
            ExchangeError::Refused(format!("it refuses the code: {}", refusal.escape_debug()))
        }
        RequestTokenError::Request(error) => ExchangeError::Unavailable(error),
        // The text of the response may contain tokens.
        RequestTokenError::Parse(error, _) => {
            ExchangeError::Refused(format!("the response has no tokens: {error}"))
        }
        RequestTokenError::Other(why) => ExchangeError::Refused(why),
    })
}

/// The reason why a code couldn't be exchanged.
pub(crate) enum ExchangeError {
    /// The provider has refused the code.
    Refused(String),
    /// The provider hasn't responded.
    Unavailable(NoResponse),
}
