//! Users with second factors, whose forms are sent while the database is away.

use serde_json::json;

use crate::console::passkeys;
use support::authenticator::Authenticator;
use support::console::Browser;
use support::security_key::SecurityKey;
use support::world::{PASSWORD, World};

/// Users with second factors, and the data that their forms need.
pub struct SecondFactors {
    /// Two browsers of Gus, who has a second factor.
    pub browsers: [Browser; 2],
    pub recovery_codes: Vec<String>,
    /// The cookie of Gus's sign-in before its second step.
    pub pending_login: String,
    /// The browser of Hal, who is about to add a second factor.
    pub enrolling: Browser,
    /// The first code of Hal's app.
    pub first_code: String,
    pub passkeys: Passkeys,
}

/// The form fields that contain a passkey's answer.
pub type Signed = [(&'static str, String); 2];

/// A user with a passkey, and the data that their forms need.
pub struct Passkeys {
    /// Two browsers of the user.
    pub browsers: [Browser; 2],
    pub id: String,
    pub sign_in: Signed,
    pub reauthentication: Signed,
    pub new: Signed,
}

impl Passkeys {
    pub async fn new(world: &World) -> Self {
        let ivy = world.user("ivy").await;
        let browser = world.browser(ivy.id).await;
        let (mut key, added) = passkeys::add(world, &browser, &[("name", "Laptop")]).await;
        assert_eq!(added.status, 303, "the password stays enough: {}", added.text);
        let list = world.get("/v1/auth/passkeys").bearer(&world.session(ivy.id).await.access_token);
        let id = list.data().await["passkeys"][0]["id"].as_str().unwrap().to_owned();
        let other = world.browser(ivy.id).await;
        let page = Browser::signed_out().page(world, passkeys::SIGN_IN).await;
        let sign_in = passkeys::signed(&page, &mut key);
        let reauthentication = passkeys::signed(&other.page(world, passkeys::AGAIN).await, &mut key);
        let new = passkeys::made(&browser.page(world, passkeys::NEW).await, &mut SecurityKey::new());
        Self { browsers: [browser, other], id, sign_in, reauthentication, new }
    }
}

impl SecondFactors {
    pub async fn new(world: &World) -> Self {
        let (gus, hal) = (world.user("gus").await, world.user("hal").await);
        let (_, recovery_codes) = world.add_authenticator_now(&gus.access_token).await;
        let browsers =
            [world.browser_session(gus.id, false).await.0, world.browser_session(gus.id, false).await.0];
        let fields = [("email", "gus@example.com"), ("password", PASSWORD)];
        let answer = Browser::signed_out().post(world, "/console/sign-in", &fields).send().await;
        let pending_login = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        let enrolling = world.browser_session(hal.id, false).await.0;
        let started = world.post("/v1/auth/totp", &json!({})).bearer(&hal.access_token).data().await;
        let first_code = Authenticator::new(started["secret"].as_str().unwrap()).code(world.clock.now());
        let passkeys = Passkeys::new(world).await;
        Self { browsers, recovery_codes, pending_login, enrolling, first_code, passkeys }
    }
}
