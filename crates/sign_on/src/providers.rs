//! The configured providers, and sign-ons with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};

use crate::client::{Client, NoResponse};
use crate::documents::Documents;
use crate::github::{self, Addresses};
use crate::identity::Identity;
use crate::logout::Logout;
use crate::oauth::{self, Endpoints, ExchangeError};
use crate::openid::{Callback, TokenError, Use, verify};
use crate::reading::{self, FileError, ProvidersFile};
use crate::secrets::Secrets;
use crate::settings::{Kind, Settings};
use kernel::clock::{Clock, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::random::Random;
use kernel::secrets::Secret;
use oauth2::TokenResponse;

/// The maximum age of documents before they are read again, in milliseconds.
const MAX_AGE_MS: i64 = HOUR_MS;
/// The pause after a failure to read the documents, in milliseconds, if older documents are available.
const RETRY_MS: i64 = MINUTE_MS;
/// The pause after a failure to read the documents, in milliseconds, if no documents are available.
const RETRY_WITHOUT_MS: i64 = 10 * SECOND_MS;
/// The minimum time between two reads of the keys that are caused by a token with an unknown key, in
/// milliseconds.
const KEYS_MS: i64 = MINUTE_MS;
/// The maximum time by which a provider's clock may be behind, in milliseconds.
const SKEW_MS: i64 = MINUTE_MS;
/// The maximum length of a code or a logout token, in bytes.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// The configured providers. They can be reloaded while sign-ons are in progress.
pub struct Providers {
    file: Option<PathBuf>,
    public_url: String,
    clock: Clock,
    random: Random,
    client: Client,
    current: ArcSwap<Vec<Arc<Provider>>>,
    reload_requested: Notify,
    log_requested: AtomicBool,
}

/// A sign-on that was started.
#[derive(Debug)]
pub struct Begun {
    /// The link to the provider.
    pub url: String,
    pub secrets: Secrets,
}

impl Providers {
    /// Reads the file. If `file` is `None`, no providers are configured. `public_url` is the URL of this
    /// server.
    ///
    /// # Errors
    /// The file has mistakes (the error lists all of them), or TLS can't be used.
    pub fn load(
        file: Option<PathBuf>,
        public_url: &str,
        clock: Clock,
        random: Random,
    ) -> Result<Self, String> {
        let read = file.as_deref().map(reading::load).transpose().map_err(|error| error.to_string())?;
        let read = read.unwrap_or_default();
        read.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let client = Client::new(file.is_some())?;
        let providers = Self {
            file,
            public_url: public_url.trim_end_matches('/').to_owned(),
            clock,
            random,
            client,
            current: ArcSwap::default(),
            reload_requested: Notify::new(),
            log_requested: AtomicBool::new(false),
        };
        providers.replace(read);
        Ok(providers)
    }

    /// Returns the providers, in the order of the file.
    pub fn all(&self) -> Arc<Vec<Arc<Provider>>> {
        self.current.load_full()
    }

    /// Returns the provider with this id.
    ///
    /// # Errors
    /// `provider_not_found`.
    pub fn get(&self, id: &str) -> Result<Arc<Provider>, Error> {
        let found = self.current.load().iter().find(|provider| provider.settings.id == id).map(Arc::clone);
        Ok(found.ok_or(Code::ProviderNotFound)?)
    }

    /// Returns the providers that belong to an organization, in the order of the file.
    pub fn of_organization(&self, id: OrganizationId) -> Vec<Arc<Provider>> {
        let all = self.current.load();
        let is_of =
            |settings: &Settings| settings.membership.as_ref().is_some_and(|m| m.organization_id == id);
        all.iter().filter(|provider| is_of(&provider.settings)).map(Arc::clone).collect()
    }

    /// Returns the file, if one is configured.
    pub fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    /// Requests that the file be read again.
    pub fn request_reload(&self) {
        self.log_requested.store(true, Ordering::SeqCst);
        self.reload_requested.notify_one();
    }

    /// Requests that the file be read again because it may have changed; nothing is logged if it hasn't.
    pub fn request_check(&self) {
        self.reload_requested.notify_one();
    }

    /// Waits until a reload is requested.
    pub async fn reload_requested(&self) {
        self.reload_requested.notified().await;
    }

    /// Reads the file again. Providers with unchanged settings keep their documents. If the file has a
    /// mistake, nothing changes.
    ///
    /// # Errors
    /// The file has mistakes: the error lists all of them.
    pub fn reload(&self) -> Result<(), FileError> {
        let is_logged = self.log_requested.swap(false, Ordering::SeqCst);
        let Some(file) = &self.file else { return Ok(()) };
        let read = reading::load(file)?;
        let is_changed = self.replace(read);
        if is_logged || is_changed {
            tracing::info!(
                providers = self.current.load().len(),
                is_changed,
                "the providers file was read again"
            );
        }
        Ok(())
    }

    fn replace(&self, read: ProvidersFile) -> bool {
        let before = self.current.load();
        let keep = |settings: Settings| match before.iter().find(|provider| provider.settings == settings) {
            Some(provider) => Arc::clone(provider),
            None => {
                Arc::new(Provider::new(settings, &self.public_url, &self.clock, &self.random, &self.client))
            }
        };
        let after: Vec<_> = read.providers.into_iter().map(keep).collect();
        let is_changed =
            before.len() != after.len() || before.iter().zip(&after).any(|(old, new)| !Arc::ptr_eq(old, new));
        drop(before);
        self.current.store(Arc::new(after));
        is_changed
    }

    /// Refreshes the documents of all providers that are due.
    pub async fn refresh(&self) {
        for provider in self.all().iter() {
            if let Err(why) = provider.refresh().await {
                tracing::debug!(provider = provider.settings.id, "{why}");
            }
        }
    }
}

/// A configured provider.
pub struct Provider {
    pub settings: Settings,
    callback: String,
    clock: Clock,
    random: Random,
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    documents: Option<Arc<Documents>>,
    /// The time at which the documents were read.
    read_at: Option<Time>,
    /// The time of the last attempt to read the documents.
    tried_at: Option<Time>,
    /// The time at which the keys were last read because of an unknown key.
    keys_read_at: Option<Time>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("id", &self.settings.id).finish_non_exhaustive()
    }
}

/// Returns `true` if less than `ms` have passed since `since`. Returns `false` if `since` is in the future,
/// because the clock was set back.
fn is_within(since: Option<Time>, ms: i64, now: Time) -> bool {
    since.is_some_and(|since| (0..ms).contains(&now.unix_ms().saturating_sub(since.unix_ms())))
}

impl Provider {
    fn new(settings: Settings, public_url: &str, clock: &Clock, random: &Random, client: &Client) -> Self {
        Self {
            callback: format!("{public_url}/console/sign-in/{}/callback", settings.id),
            settings,
            clock: clock.clone(),
            random: random.clone(),
            client: client.clone(),
            state: Mutex::default(),
        }
    }

    /// Returns the URL at which a browser starts a sign-on.
    pub fn sign_in_url(&self) -> &str {
        self.callback.trim_end_matches("/callback")
    }

    /// Reads the documents if they are due.
    ///
    /// # Errors
    /// The documents are due, but can't be read. Older documents stay in use.
    async fn refresh(&self) -> Result<(), NoResponse> {
        if self.settings.kind == Kind::GitHub {
            return Ok(());
        }
        let now = self.clock.now();
        let mut state = self.state.lock().await;
        let pause_ms = if state.documents.is_some() { RETRY_MS } else { RETRY_WITHOUT_MS };
        if is_within(state.read_at, MAX_AGE_MS, now) || is_within(state.tried_at, pause_ms, now) {
            return Ok(());
        }
        state.tried_at = Some(now);
        match Documents::fetch(&self.client, &self.settings.issuer).await {
            Ok(documents) => {
                state.documents = Some(Arc::new(documents));
                state.read_at = Some(now);
                Ok(())
            }
            Err(why) => {
                tracing::warn!(
                    provider = self.settings.id,
                    "the documents of a provider can't be read: {why}"
                );
                Err(why)
            }
        }
    }

    async fn documents(&self) -> Result<Arc<Documents>, Error> {
        let refreshed = self.refresh().await;
        let documents = self.state.lock().await.documents.clone();
        documents.ok_or_else(|| {
            // The reason has been logged.
            drop(refreshed);
            Code::ProviderUnavailable.into()
        })
    }

    /// Reads the keys again, and returns the documents with them; `None` if the keys were read recently or
    /// can't be read.
    async fn with_new_keys(&self) -> Option<Arc<Documents>> {
        let now = self.clock.now();
        let mut state = self.state.lock().await;
        let documents = state.documents.clone().filter(|_| !is_within(state.keys_read_at, KEYS_MS, now))?;
        state.keys_read_at = Some(now);
        match documents.fetch_keys(&self.client).await {
            Ok(keys) => {
                let documents = Arc::new(documents.with_keys(keys));
                state.documents = Some(Arc::clone(&documents));
                Some(documents)
            }
            Err(why) => {
                tracing::warn!(provider = self.settings.id, "the keys of a provider can't be read: {why}");
                None
            }
        }
    }

    /// Starts a sign-on. With `is_fresh`, the user must authenticate at the provider again.
    ///
    /// # Errors
    /// `provider_unavailable`.
    pub async fn begin(&self, is_fresh: bool) -> Result<Begun, Error> {
        let secrets = Secrets::generate(&self.random);
        let url = match self.settings.kind {
            Kind::OpenId => {
                let documents = self.documents().await?;
                let mut more = vec![("nonce", secrets.nonce.as_str())];
                if is_fresh {
                    more.extend([("max_age", "0"), ("prompt", "login")]);
                }
                // Otherwise Google also offers accounts of other organizations.
                if let ([domain], true) = (self.settings.domains.as_slice(), self.settings.is_google()) {
                    more.push(("hd", domain));
                }
                oauth::authorization_url(
                    &self.settings,
                    &endpoints(&documents),
                    &self.callback,
                    &secrets,
                    &more,
                )
            }
            Kind::GitHub => {
                let addresses = Addresses::of(&self.settings);
                oauth::authorization_url(
                    &self.settings,
                    &of_github(&addresses),
                    &self.callback,
                    &secrets,
                    &[],
                )
            }
        };
        Ok(Begun { url: url.map_err(|why| self.unavailable(&why))?, secrets })
    }

    /// Finishes a sign-on that was started with these secrets, and returns the user's identity. With
    /// `asked_at`, the user must have authenticated after this time.
    ///
    /// # Errors
    /// `sign_on_expired` if the response belongs to another sign-on; `sign_on_failed` if it isn't valid;
    /// `provider_unavailable`.
    pub async fn finish(
        &self,
        secrets: &Secrets,
        callback: &Callback<'_>,
        asked_at: Option<Time>,
    ) -> Result<Identity, Error> {
        if !Secret::new(secrets.state.as_str()).matches(callback.state) {
            return Err(Code::SignOnExpired.into());
        }
        let documents = match self.settings.kind {
            Kind::OpenId => Some(self.documents().await?),
            Kind::GitHub => None,
        };
        let must_name_issuer = documents.as_ref().is_some_and(|documents| documents.names_issuer);
        match callback.issuer {
            Some(issuer) if issuer != self.settings.issuer => {
                return Err(self.refused("the response is from another issuer (`iss`)"));
            }
            None if must_name_issuer => {
                return Err(self.refused("the response doesn't name its issuer (`iss`)"));
            }
            _ => {}
        }
        if let Some(error) = callback.error {
            let error: String = error.chars().take(100).flat_map(char::escape_debug).collect();
            return Err(self.refused(&format!("it responded with the error {error}")));
        }
        let code = callback.code.filter(|code| (1..=MAX_VALUE_BYTES).contains(&code.len()));
        let code = code.ok_or_else(|| self.refused("the response has no code"))?;
        match documents {
            Some(documents) => {
                let tokens = self.exchange(&endpoints(&documents), secrets, code).await?;
                let token = tokens.extra_fields().id_token.as_deref();
                let token = token.ok_or_else(|| self.refused("it returned no ID token"))?;
                let claims = self.verify(&documents, token, Use::Identity { nonce: &secrets.nonce }).await?;
                let identity = Identity::of_claims(&self.settings, &claims);
                let identity = identity.ok_or_else(|| self.refused("its ID token has no subject (`sub`)"))?;
                let since = asked_at.map(|asked_at| asked_at.plus_ms(-SKEW_MS));
                if since.is_some_and(|since| identity.authenticated_at.is_none_or(|at| at < since)) {
                    return Err(
                        self.refused("it doesn't confirm that the user has just signed in (`auth_time`)")
                    );
                }
                Ok(identity)
            }
            None => {
                let addresses = Addresses::of(&self.settings);
                let tokens = self.exchange(&of_github(&addresses), secrets, code).await?;
                let token = tokens.access_token().secret();
                let asked = github::ask(&self.client, &self.settings, &addresses, token).await;
                asked.map_err(|why| self.unavailable(&why))
            }
        }
    }

    async fn exchange(
        &self,
        endpoints: &Endpoints<'_>,
        secrets: &Secrets,
        code: &str,
    ) -> Result<oauth::Tokens, Error> {
        let exchanged =
            oauth::exchange(&self.client, &self.settings, endpoints, &self.callback, secrets, code).await;
        exchanged.map_err(|error| match error {
            ExchangeError::Refused(why) => self.refused(&why),
            ExchangeError::Unavailable(why) => self.unavailable(&why),
        })
    }

    async fn verify(
        &self,
        documents: &Documents,
        token: &str,
        purpose: Use<'_>,
    ) -> Result<serde_json::Map<String, serde_json::Value>, Error> {
        let now = self.clock.now();
        let mut verified = verify(&self.settings, &documents.keys, token, purpose, now);
        if verified == Err(TokenError::UnknownKey)
            && let Some(documents) = self.with_new_keys().await
        {
            verified = verify(&self.settings, &documents.keys, token, purpose, now);
        }
        verified.map_err(|error| match error {
            TokenError::UnknownKey => self.refused("none of its keys signed the token"),
            TokenError::Refused(why) => self.refused(&why),
        })
    }

    /// Reads a logout token of the provider.
    ///
    /// # Errors
    /// `provider_not_found` if the provider may not sign users out; `sign_on_failed` if the token isn't
    /// valid; `provider_unavailable`.
    pub async fn read_logout(&self, token: &str) -> Result<Logout, Error> {
        if !self.settings.takes_logouts || self.settings.kind != Kind::OpenId {
            return Err(Code::ProviderNotFound.into());
        }
        if token.len() > MAX_VALUE_BYTES {
            return Err(self.refused("its token is too long"));
        }
        let documents = self.documents().await?;
        let claims = self.verify(&documents, token, Use::Logout).await?;
        Logout::of_claims(&self.settings.issuer, &claims).map_err(|why| self.refused(why))
    }

    fn refused(&self, why: &str) -> Error {
        tracing::warn!(provider = self.settings.id, "a sign-on was refused: {why}");
        Code::SignOnFailed.into()
    }

    fn unavailable(&self, why: &NoResponse) -> Error {
        tracing::warn!(provider = self.settings.id, "a provider doesn't answer: {why}");
        Code::ProviderUnavailable.into()
    }
}

fn endpoints(documents: &Documents) -> Endpoints<'_> {
    Endpoints {
        authorization: &documents.authorization_endpoint,
        token: &documents.token_endpoint,
        takes_secret_in_body: documents.takes_secret_in_body,
    }
}

fn of_github(addresses: &Addresses) -> Endpoints<'_> {
    Endpoints {
        authorization: &addresses.authorization,
        token: &addresses.token,
        takes_secret_in_body: false,
    }
}
