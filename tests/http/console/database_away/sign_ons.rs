//! Users of a provider, whose forms are sent while the database is away.

use serde_json::json;
use tollkeeper::clock::{Clock, Time};

use support::Database;
use support::console::{Browser, COOKIE};
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::outage::{Removable, with_outage};
use support::stripe::FakeStripe;
use support::world::{Folder, START, World, runtime};

/// Runs a test on a database that can be taken away, with a providers file and with payments.
pub fn with_providers(database: Database, test: impl AsyncFn(World, Removable, &ProvidersFile)) {
    let file = ProvidersFile::new();
    let path = file.path();
    let (clock, folder) = (Clock::fixed(Time::parse(START).unwrap()), Folder::new());
    let runtime = runtime();
    let stripe = runtime.block_on(FakeStripe::start(&clock));
    let of_stripe = stripe.settings(&folder.0);
    let mut settings =
        vec![("TOLLKEEPER_LIMITS__ENABLED", "false"), ("TOLLKEEPER_SIGN_IN__PROVIDERS_FILE", path.as_str())];
    settings.extend(of_stripe.iter().map(|(name, value)| (*name, value.as_str())));
    with_outage(database, &settings, async |world, database| test(world, database, &file).await);
}

/// A provider, and the data that the forms of its users need.
pub struct SignOns {
    provider: IdentityProvider,
    /// The cookies of a browser with a pending connection: an account with the user's address exists, but the
    /// address was never verified.
    pub pending: String,
}

impl SignOns {
    /// Starts a provider that belongs to this organization.
    pub async fn new(world: &World, file: &ProvidersFile, organization: &str) -> Self {
        let provider = IdentityProvider::start().await;
        let more = format!("organization = \"{organization}\"");
        file.write(world, &[("acme", &provider.issuer, &more)]);
        world.unverified_user("ike").await;
        let claims = json!({"sub": "ike", "email": "ike@example.com", "email_verified": true});
        let mut jar = Jar::default();
        let answer = provider.sign_on(world, &mut jar, "/console/sign-in/acme", &claims).await;
        assert_eq!(answer.header("location"), "/console/sign-in/confirm", "{}", answer.text);
        Self { provider, pending: jar.cookies() }
    }

    /// Starts to connect the account of this browser's user, up to the page that asks for a confirmation;
    /// returns the cookies.
    pub async fn connect(&self, world: &World, browser: &Browser) -> String {
        let mut jar = Jar::default();
        jar.0.insert(COOKIE.to_owned(), browser.cookie.clone());
        let path = "/console/account/connections/new/acme";
        let answer = self.provider.sign_on(world, &mut jar, path, &json!({"sub": "waiting"})).await;
        assert_eq!(answer.header("location"), "/console/account/connections/confirm", "{}", answer.text);
        jar.cookies()
    }

    pub fn issuer(&self) -> &str {
        &self.provider.issuer
    }
}
