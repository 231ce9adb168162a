//! An account registered by an attacker with another person's address, and the attacker's access after the
//! address's owner verifies it.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::db::sql;
use tollkeeper::ids::UserId;
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::tenants::roles::OrganizationRole;
use tollkeeper::tenants::store::invitations;
use tollkeeper::trail::{self, Filter};

use super::{NEW_PASSWORD, access_token, forgot, login, mails, register, reset, text};
use support::http::{Answer, Call};
use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{PASSWORD, Place, TestUser, World};

const VICTIM: &str = "victim@example.com";
const ATTACKER_PASSWORD: &str = "Stranger-Lamp-Tower-4";

/// The account, sessions and keys that the attacker has created.
struct HijackedAccount {
    access_token: String,
    refresh_token: String,
    place: Place,
    key: String,
    /// The token of the link in the registration e-mail.
    verification: String,
    /// The token of an invitation that the account has sent to the attacker's other account.
    invitation: String,
}

fn page(world: &World, fields: &[(&str, &str)]) -> Call {
    world.call(Method::POST, "/verify-email").form(fields)
}

fn confirm(world: &World, token: &str, password: &str) -> Call {
    page(world, &[("token", token), ("password", password)])
}

fn take_over(world: &World, token: &str, password: &str, again: &str) -> Call {
    page(world, &[("token", token), ("new_password", password), ("new_password_confirmation", again)])
}

fn assert_page(answer: &Answer, status: u16, title: &str) {
    let heading = format!("<h1>{title}</h1>");
    assert_eq!((answer.status, answer.text.contains(&heading)), (status, true), "{heading}: {}", answer.text);
}

async fn invite_victim(world: &World, admin: &TestUser, place: &Place) -> String {
    let path = format!("{}/invitations", place.organization_path());
    let body = json!({"email": VICTIM, "role": "admin"});
    world.post(&path, &body).bearer(&admin.access_token).data().await;
    let token = world.mailed_token(VICTIM).await;
    world.clock.advance_ms(1);
    token
}

async fn organizations(world: &World, token: &str) -> Vec<String> {
    let data = world.get("/v1/organizations").bearer(token).data().await;
    let mut names: Vec<_> =
        data["organizations"].as_array().unwrap().iter().map(|row| text(row, "name")).collect();
    names.sort();
    names
}

/// An attacker registers the victim's address, logs in and creates objects.
async fn hijack(world: &World) -> HijackedAccount {
    register(world, "victim", ATTACKER_PASSWORD).await;
    let verification = world.mailed_token(VICTIM).await;
    world.clock.advance_ms(1);
    let tokens = login(world, "victim", ATTACKER_PASSWORD).data().await;
    let (access_token, refresh_token) = (text(&tokens, "access_token"), text(&tokens, "refresh_token"));
    let post = async |path: &str, body: Value| {
        let data = world.post(path, &body).bearer(&access_token).data().await;
        data["id"].as_str().unwrap_or_default().to_owned()
    };
    let organization = post("/v1/organizations", json!({"name": "Bait <b>& Co"})).await;
    let project = post(&format!("/v1/organizations/{organization}/projects"), json!({"name": "Hook"})).await;
    let place = Place { organization, project };
    let keys = format!("{}/api-keys", place.project_path());
    let made = world.post(&keys, &json!({"name": "line"})).bearer(&access_token).data().await;
    // Another account of the attacker also owns the organization, and a third one is invited. The rows are
    // inserted directly, because unverified users may not be allowed to send e-mails.
    let accomplice = world.user("accomplice").await;
    world.join_organization(&place, &accomplice, tollkeeper::tenants::roles::OrganizationRole::Owner).await;
    let invitation = insert_open_invitation(world, &access_token, &place).await;
    HijackedAccount { access_token, refresh_token, place, key: text(&made, "key"), verification, invitation }
}

/// Inserts an open invitation by the owner of this token to an address with an account; returns the token of
/// its link.
async fn insert_open_invitation(world: &World, access_token: &str, place: &Place) -> String {
    let me = world.get("/v1/auth/me").bearer(access_token).data().await;
    world.user("friend").await;
    let sender = UserId::parse(me["user"]["id"].as_str().unwrap()).unwrap();
    let friend = ("friend@example.com", "friend@example.com");
    let id = world.insert_invitation(place, friend, OrganizationRole::Owner, sender).await;
    let token = MailToken::generate(&world.app.random);
    let now = world.clock.now();
    let mut tx = world.app.db.write().await.unwrap();
    let given = invitations::set_token(&mut tx, id, token.hash(), now.plus_ms(DAY_MS), now).await.unwrap();
    assert!(given.is_some());
    tx.commit().await.unwrap();
    token.expose().to_owned()
}

/// Asserts that the attacker still has access everywhere, on both servers.
async fn assert_attacker_has_access(world: &World, replica: &Twin, stranger: &HijackedAccount) {
    for status in attacker_statuses(world, replica, stranger).await {
        assert_eq!(status, 200);
    }
}

/// Returns the statuses of the attacker's tokens and key, on both servers.
async fn attacker_statuses(world: &World, replica: &Twin, stranger: &HijackedAccount) -> [u16; 4] {
    settle(replica).await;
    let path = stranger.place.organization_path();
    [
        world.get("/v1/auth/me").bearer(&stranger.access_token).send().await.status,
        replica.get("/v1/auth/me").bearer(&stranger.access_token).send().await.status,
        world.get(&path).bearer(&stranger.key).send().await.status,
        replica.get(&path).bearer(&stranger.key).send().await.status,
    ]
}

/// Asserts that the attacker has lost all access, and that the owner was informed of the account's
/// memberships.
async fn assert_attacker_is_locked_out(world: &World, replica: &Twin, stranger: &HijackedAccount) {
    assert_eq!(attacker_statuses(world, replica, stranger).await, [401; 4]);
    let refresh = world.post("/v1/auth/refresh-token", &json!({})).bearer(&stranger.refresh_token);
    assert_eq!(refresh.refused().await.0, 401);
    let verify = world.post("/v1/auth/verify-email", &json!({"token": stranger.verification}));
    assert_eq!(verify.refused().await, (400, "invalid_token".into()));
    let invitation = [("token", stranger.invitation.as_str())];
    let followed = world.call(Method::POST, "/invitations/accept").form(&invitation).send().await;
    assert_page(&followed, 400, "This link no longer works");
    assert_eq!(login(world, "victim", ATTACKER_PASSWORD).refused().await.0, 401);
    let owner = access_token(world, "victim", NEW_PASSWORD).await;
    let keys = world.get(&format!("{}/api-keys", stranger.place.project_path()));
    assert_eq!(keys.bearer(&owner).data().await["total"], 0, "the key was deleted");
    let notices = mails(world, "victim", "Your password was changed").await;
    assert_eq!(notices.len(), 1);
    let line = "- Bait <b>& Co: owner, 1 other member";
    assert!(notices[0].lines().any(|found| found == line), "{}", notices[0]);
    assert!(notices[0].contains("Bait &#60;b&#62;&#38; Co: owner, 1 other member"), "{}", notices[0]);
    let filter =
        tollkeeper::trail::Filter { action: "api_key.deleted".into(), limit: 9, ..Default::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = tollkeeper::trail::list(&mut tx, &filter).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].organization_id.unwrap().to_string(), stranger.place.organization);
}

#[on_each_database]
async fn confirming_by_the_link_alone_does_not_admit_the_attacker(world: World) {
    let admin = world.user("admin").await;
    let place = world.place(&admin, "Corp").await;
    let invitation = invite_victim(&world, &admin, &place).await;
    let stranger = hijack(&world).await;
    let verify = json!({"token": stranger.verification});
    world.post("/v1/auth/verify-email", &verify).data().await;
    let corp = |names: Vec<String>| names.contains(&"Corp".to_owned());
    assert!(!corp(organizations(&world, &stranger.access_token).await), "an old session gains nothing");
    // The link of the invitation doesn't admit the attacker either: the logged-in user may not be the
    // e-mail's reader.
    let follow = || world.call(Method::POST, "/invitations/accept").form(&[("token", &invitation)]).send();
    let followed = follow().await;
    assert_page(&followed, 200, "Sign in first");
    assert!(!corp(organizations(&world, &stranger.access_token).await));
    // The next login accepts the invitation.
    let token = access_token(&world, "victim", ATTACKER_PASSWORD).await;
    assert!(corp(organizations(&world, &token).await));
    assert_page(&follow().await, 400, "This link no longer works");
}

#[on_each_database]
async fn invitation_link_works_at_once_after_a_login(world: World) {
    let admin = world.user("admin").await;
    let place = world.place(&admin, "Corp").await;
    register(&world, "victim", PASSWORD).await;
    let token = world.mailed_token(VICTIM).await;
    world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
    let access = access_token(&world, "victim", PASSWORD).await;
    world.clock.advance_ms(1);
    let invitation = invite_victim(&world, &admin, &place).await;
    let form = [("token", invitation.as_str())];
    let followed = world.call(Method::POST, "/invitations/accept").form(&form).send().await;
    assert_page(&followed, 200, "You’re a member");
    assert_eq!(organizations(&world, &access).await, ["Corp"]);
}

#[on_each_database]
async fn page_asks_for_the_password_and_then_accepts_invitations(world: World) {
    let admin = world.user("admin").await;
    let place = world.place(&admin, "Corp").await;
    invite_victim(&world, &admin, &place).await;
    register(&world, "victim", PASSWORD).await;
    let token = world.mailed_token(VICTIM).await;
    let access = access_token(&world, "victim", PASSWORD).await;
    let shown = world.get(&format!("/verify-email?token={token}")).send().await;
    assert_page(&shown, 200, "Confirm your e-mail address");
    assert_eq!(shown.text.matches("autocomplete=\"current-password\"").count(), 1, "{}", shown.text);
    assert_eq!(shown.text.matches("autocomplete=\"new-password\"").count(), 2, "{}", shown.text);

    // The user may copy the token from the e-mail instead of following the link.
    let answer = page(&world, &[("token", &token)]).send().await;
    assert_page(&answer, 200, "Confirm your e-mail address");
    assert!(!answer.text.contains("role=\"alert\""), "{}", answer.text);
    assert!(answer.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", answer.text);
    let answer = confirm(&world, &token, "").send().await;
    assert_page(&answer, 400, "Confirm your e-mail address");
    assert!(answer.text.contains("The password is required."), "{}", answer.text);
    assert!(answer.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", answer.text);
    let answer = confirm(&world, &token, "Wrong-Kettle-1").send().await;
    assert_page(&answer, 400, "Confirm your e-mail address");
    assert!(answer.text.contains("The password is incorrect."), "{}", answer.text);
    assert!(!answer.text.contains("Wrong-Kettle-1"), "the page doesn't contain the password");
    assert!(answer.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", answer.text);
    let me = world.get("/v1/auth/me").bearer(&access).data().await;
    assert_eq!(me["user"]["email_verified"], false);

    let done = confirm(&world, &token, PASSWORD).send().await;
    assert_page(&done, 200, "Your address is confirmed");
    assert_eq!(organizations(&world, &access).await, ["Corp"], "at once");
    assert_page(&confirm(&world, &token, PASSWORD).send().await, 400, "This link no longer works");
}

#[on_each_database]
async fn guesses_on_the_page_count_like_logins(world: World) {
    register(&world, "victim", PASSWORD).await;
    let token = world.mailed_token(VICTIM).await;
    for _ in 0..9 {
        assert_eq!(confirm(&world, &token, "Wrong-Kettle-1").send().await.status, 400);
    }
    assert_eq!(login(&world, "victim", "Wrong-Kettle-1").refused().await.0, 401);
    let answer = confirm(&world, &token, PASSWORD).send().await;
    assert_page(&answer, 429, "Please wait a moment");
    world.clock.advance_ms(1_000);
    assert_page(&confirm(&world, &token, PASSWORD).send().await, 200, "Your address is confirmed");
    // The right password resets the count of wrong ones.
    for _ in 0..9 {
        assert_eq!(login(&world, "victim", "Wrong-Kettle-1").refused().await.0, 401);
    }
    login(&world, "victim", PASSWORD).data().await;
}

#[on_each_database]
async fn new_password_on_the_page_locks_the_attacker_out(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let admin = world.user("admin").await;
    let place = world.place(&admin, "Corp").await;
    invite_victim(&world, &admin, &place).await;
    let stranger = hijack(&world).await;
    assert_attacker_has_access(&world, &replica, &stranger).await;
    let token = stranger.verification.as_str();

    let weak = take_over(&world, token, "kettle", "kettle").send().await;
    assert_page(&weak, 400, "Confirm your e-mail address");
    assert!(weak.text.contains("The new password needs a digit."), "{}", weak.text);
    let differ = take_over(&world, token, NEW_PASSWORD, "Another-Kettle-77").send().await;
    assert_page(&differ, 400, "Confirm your e-mail address");
    assert!(differ.text.contains("The passwords don’t match."), "{}", differ.text);
    let missing = page(&world, &[("token", token), ("new_password", NEW_PASSWORD)]).send().await;
    assert!(missing.text.contains("The repeated password is required."), "{}", missing.text);
    let same = take_over(&world, token, ATTACKER_PASSWORD, ATTACKER_PASSWORD).send().await;
    assert_page(&same, 400, "Confirm your e-mail address");
    assert!(same.text.contains("The new password must be different from the current one."), "{}", same.text);
    assert_attacker_has_access(&world, &replica, &stranger).await;

    let done = take_over(&world, token, NEW_PASSWORD, NEW_PASSWORD).send().await;
    assert_page(&done, 200, "Your address is confirmed");
    assert!(done.text.contains("Bait &#60;b&#62;&#38; Co: owner, 1 other member"), "{}", done.text);
    assert_attacker_is_locked_out(&world, &replica, &stranger).await;
    let token = access_token(&world, "victim", NEW_PASSWORD).await;
    assert_eq!(organizations(&world, &token).await, ["Bait <b>& Co", "Corp"]);
}

/// Hijacks the victim's address, then requests a password reset for it; returns a replica, the account, and
/// the token of the link.
async fn reset_by_the_victim(world: &World) -> (Twin, HijackedAccount, String) {
    let [_, replica] = Twin::both(world).await;
    let stranger = hijack(world).await;
    assert_attacker_has_access(world, &replica, &stranger).await;
    forgot(world, "victim").await;
    let token = world.mailed_token(VICTIM).await;
    (replica, stranger, token)
}

#[on_each_database]
async fn reset_of_an_unverified_address_locks_the_attacker_out(world: World) {
    let (replica, stranger, token) = reset_by_the_victim(&world).await;
    let done = reset(&world, &token, NEW_PASSWORD).data().await;
    assert_eq!(done.as_object().unwrap().len(), 2, "{done}");
    assert_attacker_is_locked_out(&world, &replica, &stranger).await;
}

#[on_each_database]
async fn reset_page_shows_the_accounts_memberships(world: World) {
    let (replica, stranger, token) = reset_by_the_victim(&world).await;
    let passwords = [("password", NEW_PASSWORD), ("password_confirmation", NEW_PASSWORD)];
    let fields = [&[("token", token.as_str())], &passwords[..]].concat();
    let done = world.call(Method::POST, "/reset-password").form(&fields).send().await;
    assert_page(&done, 200, "Your password has changed");
    assert!(done.text.contains("Bait &#60;b&#62;&#38; Co: owner, 1 other member"), "{}", done.text);
    assert_attacker_is_locked_out(&world, &replica, &stranger).await;
}

#[on_each_database]
async fn reset_of_a_verified_address_keeps_keys_and_invitations(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "a"})).await;
    let invitation = insert_open_invitation(&world, &ada.access_token, &place).await;
    forgot(&world, "ada").await;
    let token = world.mailed_token("ada@example.com").await;
    let passwords = [("password", NEW_PASSWORD), ("password_confirmation", NEW_PASSWORD)];
    let fields = [&[("token", token.as_str())], &passwords[..]].concat();
    let done = world.call(Method::POST, "/reset-password").form(&fields).send().await;
    assert_page(&done, 200, "Your password has changed");
    assert!(!done.text.contains("Acme"), "{}", done.text);
    world.get(&place.organization_path()).bearer(&key).data().await;
    let form = [("token", invitation.as_str())];
    let followed = world.call(Method::POST, "/invitations/accept").form(&form).send().await;
    assert_page(&followed, 200, "You’re a member");
    let notices = mails(&world, "ada", "Your password was changed").await;
    assert!(notices.len() == 1 && !notices[0].contains("Acme"), "{notices:?}");
}

/// A verification link is valid for longer than a password link, so it can't set a password once the address
/// is verified.
#[on_each_database]
async fn older_verification_link_sets_no_password_of_a_verified_account(world: World) {
    register(&world, "victim", PASSWORD).await;
    let token = world.mailed_token(VICTIM).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE users SET email_verified_at = 1").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let answer = take_over(&world, &token, NEW_PASSWORD, NEW_PASSWORD).send().await;
    assert_page(&answer, 400, "This link no longer works");
    login(&world, "victim", PASSWORD).data().await;
}

/// Every refusal of a password leaves an audit entry, also on the page that a link opens.
#[on_each_database]
async fn refused_passwords_at_the_page_of_a_link_leave_entries(world: World) {
    register(&world, "victim", PASSWORD).await;
    let token = world.mailed_token(VICTIM).await;
    let mut waits = 0;
    for _ in 0..30 {
        let answer = confirm(&world, &token, "Wrong-Lamp-Tower-4").send().await;
        waits += u32::from(answer.status == 429);
    }
    assert!(waits > 0);
    let filter = Filter { action: "session.refused".to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let mut reasons: Vec<_> = found.into_iter().map(|entry| text(&entry.detail.unwrap(), "reason")).collect();
    reasons.sort();
    assert_eq!(reasons, ["invalid_credentials", "too_many_attempts"]);
}
