//! The confirmation of a new e-mail address, on the page that the e-mailed link opens.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tollkeeper::clock::{DAY_MS, HOUR_MS};
use tollkeeper::db::sql;
use tollkeeper::ids::MailId;
use tollkeeper::tenants::mails::MailWriter;
use tollkeeper::tenants::roles::OrganizationRole;

use tollkeeper::mail::store::outbox::{About, QueuedMail, Template};

use super::change_email::{LINK, NEW, OLD, REQUESTED, ask};
use super::{entries, login, mails, register, text};
use support::http::{Answer, Call};
use support::twin::{Twin, settle};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const CHANGED: &str = "Your e-mail address was changed";
const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";

fn confirm(world: &World, token: &str, password: &str) -> Call {
    world.call(Method::POST, "/change-email").form(&[("token", token), ("password", password)])
}

fn assert_page(answer: &Answer, status: u16, title: &str) {
    let heading = format!("<h1>{title}</h1>");
    assert_eq!((answer.status, answer.text.contains(&heading)), (status, true), "{heading}: {}", answer.text);
}

async fn assert_dead(world: &World, token: &str) {
    assert_page(&confirm(world, token, PASSWORD).send().await, 400, "This link no longer works");
}

/// Requests the new address, and returns the token of the link.
async fn link(world: &World, access_token: &str, new_email: &str) -> String {
    ask(world, access_token, new_email, PASSWORD).data().await;
    let token = world.mailed_token(new_email).await;
    // File names of e-mails contain the time, so two e-mails need different times.
    world.clock.advance_ms(1);
    token
}

async fn me(world: &World, access_token: &str) -> u16 {
    world.get("/v1/auth/me").bearer(access_token).send().await.status
}

#[on_each_database]
async fn link_with_the_password_changes_the_address_once(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let elsewhere = world.session(ada.id).await;
    let token = link(&world, &ada.access_token, NEW).await;
    let before = world.app.db.statement_count();
    let page = world.get(&format!("/change-email?token={token}")).send().await;
    assert_page(&page, 200, "Confirm your new e-mail address");
    assert!(page.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", page.text);
    assert!(page.text.contains("<form method=\"post\" action=\"change-email\">"), "{}", page.text);
    assert_eq!(world.app.db.statement_count(), before, "a read sends no query to the database");

    let done = confirm(&world, &token, PASSWORD).send().await;
    assert_page(&done, 200, "Your address has changed");
    assert!(done.text.contains(NEW), "{}", done.text);
    assert_dead(&world, &token).await;
    let user = world.get("/v1/auth/me").bearer(&ada.access_token).data().await["user"].take();
    assert_eq!((text(&user, "email"), &user["email_verified"]), (NEW.to_owned(), &json!(true)));
    // Every session except the one that requested the change has ended, on each replica.
    settle(&replica).await;
    assert_eq!(me(&world, &elsewhere.access_token).await, 401);
    assert_eq!(replica.get("/v1/auth/me").bearer(&elsewhere.access_token).send().await.status, 401);
    assert_eq!(replica.get("/v1/auth/me").bearer(&ada.access_token).send().await.status, 200);
    login(&world, &NEW.to_uppercase(), PASSWORD).data().await;
    assert_eq!(login(&world, OLD, PASSWORD).send().await.status, 401);
    // The former address gets a notice.
    let [notice] = mails(&world, OLD, CHANGED).await.try_into().unwrap();
    assert!(notice.contains("Hi ada,") && notice.contains("Lovelace@example[.]org"), "{notice}");
    assert_eq!(mails(&world, NEW, CHANGED).await.len(), 0);
    let id = ada.id.to_string();
    assert_eq!(entries(&world, "user.email_changed").await, [[id.clone(), id]]);
    // The old address is available for another account.
    let body = json!({"email": OLD, "password": PASSWORD, "username": "ada2"});
    world.post("/v1/auth/register", &body).data().await;
}

#[on_each_database]
async fn wrong_password_counts_and_leaves_the_link_good(world: World) {
    let ada = world.user("ada").await;
    let token = link(&world, &ada.access_token, NEW).await;
    for (password, sentence) in [("wrong", "The password is incorrect."), ("", "The password is required.")] {
        let page = confirm(&world, &token, password).send().await;
        assert_page(&page, 400, "Confirm your new e-mail address");
        let escaped = sentence.replace('\'', "&#39;");
        assert!(page.text.contains(&escaped), "{}", page.text);
        assert!(page.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", page.text);
    }
    for _ in 0..9 {
        assert_eq!(confirm(&world, &token, "wrong").send().await.status, 400);
    }
    let waits = confirm(&world, &token, PASSWORD).send().await;
    assert_page(&waits, 429, "Please wait a moment");
    assert_eq!(login(&world, OLD, PASSWORD).send().await.status, 429, "guesses at one account");
    world.clock.advance_ms(1_000);
    assert_page(&confirm(&world, &token, PASSWORD).send().await, 200, "Your address has changed");
}

#[on_each_database]
fn link_lives_a_day_from_the_request(database: Database) {
    database.run(&[], async |world| {
        let ada = world.user("ada").await;
        ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
        // The e-mail is sent later.
        world.clock.advance_ms(HOUR_MS);
        world.catch_up().await;
        let token = world.mailed_token(NEW).await;
        world.clock.advance_ms(DAY_MS - HOUR_MS);
        assert_dead(&world, &token).await;
        world.clock.advance_ms(-1);
        let padded = format!(" {token}\r\n");
        assert_page(&confirm(&world, &padded, PASSWORD).send().await, 200, "Your address has changed");
    });
    database.run(&[], async |world| {
        let ada = world.user("ada").await;
        ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
        world.clock.advance_ms(DAY_MS);
        assert_eq!(mails(&world, NEW, LINK).await.len(), 0, "too late to be useful");
        tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
        let (left,): (i64,) = sql("SELECT COUNT(*) FROM email_changes")
            .one(&mut world.app.db.read().await.unwrap())
            .await
            .unwrap();
        assert_eq!(left, 0);
    });
}

#[on_each_database]
async fn later_request_voids_the_earlier_link(world: World) {
    let ada = world.user("ada").await;
    let first = link(&world, &ada.access_token, NEW).await;
    // A new request invalidates the link even before its e-mail is sent, which never happens here.
    ask(&world, &ada.access_token, "unsent@example.com", PASSWORD).data().await;
    assert_dead(&world, &first).await;
    let second = link(&world, &ada.access_token, "second@example.com").await;
    assert_eq!(mails(&world, "unsent@example.com", LINK).await.len(), 0);
    let third = link(&world, &ada.access_token, "second@example.com").await;
    assert_dead(&world, &second).await;
    assert_page(&confirm(&world, &third, PASSWORD).send().await, 200, "Your address has changed");
    assert_eq!(login(&world, NEW, PASSWORD).send().await.status, 401);
    login(&world, "second@example.com", PASSWORD).data().await;
}

#[on_each_database]
async fn new_password_voids_the_link(world: World) {
    let ada = world.user("ada").await;
    let token = link(&world, &ada.access_token, NEW).await;
    let change = json!({"current_password": PASSWORD, "new_password": NEW_PASSWORD,
                        "new_password_confirmation": NEW_PASSWORD});
    world.post("/v1/auth/change-password", &change).bearer(&ada.access_token).data().await;
    let page = confirm(&world, &token, NEW_PASSWORD).send().await;
    assert_page(&page, 400, "This link no longer works");
    let bob = world.user("bob").await;
    let token = link(&world, &bob.access_token, NEW).await;
    world.post("/v1/auth/forgot-password", &json!({"email": "bob@example.com"})).data().await;
    let reset = json!({"token": world.mailed_token("bob@example.com").await, "password": NEW_PASSWORD,
                       "password_confirmation": NEW_PASSWORD});
    world.post("/v1/auth/reset-password", &reset).data().await;
    let page = confirm(&world, &token, NEW_PASSWORD).send().await;
    assert_page(&page, 400, "This link no longer works");
}

#[on_each_database]
async fn links_to_the_old_address_stop_working(world: World) {
    let access = text(&register(&world, "ada").await, "access_token");
    let verification = world.mailed_token(OLD).await;
    world.clock.advance_ms(1);
    world.post("/v1/auth/forgot-password", &json!({"email": OLD})).data().await;
    let reset = world.mailed_token(OLD).await;
    world.clock.advance_ms(1);
    let token = link(&world, &access, NEW).await;
    // Another reset link has been requested, but its e-mail hasn't been sent.
    world.post("/v1/auth/forgot-password", &json!({"email": OLD})).data().await;
    assert_page(&confirm(&world, &token, PASSWORD).send().await, 200, "Your address has changed");
    let resets = mails(&world, OLD, "Choose a new password").await.len();
    assert_eq!(resets, 1, "the other never leaves");
    let body = json!({"token": reset, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
    let refused = world.post("/v1/auth/reset-password", &body).refused().await;
    assert_eq!(refused, (400, "invalid_token".into()));
    let verify = json!({ "token": verification });
    assert_eq!(world.post("/v1/auth/verify-email", &verify).refused().await, (400, "invalid_token".into()));
    // The old address was never verified, so another person may read its e-mails.
    assert_eq!(mails(&world, OLD, CHANGED).await.len() + mails(&world, OLD, REQUESTED).await.len(), 0);
    let me = world.get("/v1/auth/me").bearer(&access).data().await;
    assert_eq!((&me["user"]["email_verified"], text(&me["user"], "email")), (&json!(true), NEW.to_owned()));
}

/// The address changes while a link for it is being created.
#[on_each_database]
async fn no_link_is_made_for_an_address_that_the_account_had(world: World) {
    let (ada, app) = (world.user("ada").await, &world.app);
    for template in [Template::ResetPassword, Template::VerifyEmail] {
        let mut tx = app.db.write().await.unwrap();
        sql("UPDATE users SET email_verified_at = NULL, email = $2, email_folded = $2 WHERE id = $1")
            .bind(ada.id)
            .bind(OLD)
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let writer = MailWriter {
            db: app.db.clone(),
            clock: world.clock.clone(),
            random: app.random.clone(),
            public_url: app.api.public_url.clone(),
        };
        let now = world.clock.now();
        let (id, about) = (MailId::new(now, &app.random), About::default());
        let mail = QueuedMail { id, template, email: OLD.into(), about, created_at: now, attempts: 1 };
        assert!(writer.write(&mail).await.unwrap().is_some(), "while the account has the address");
        let mut tx = app.db.write().await.unwrap();
        sql("UPDATE users SET email = $2, email_folded = $2 WHERE id = $1")
            .bind(ada.id)
            .bind(NEW.to_lowercase())
            .execute(&mut tx)
            .await
            .unwrap();
        let before = app.db.statement_count();
        let written = tokio::spawn(async move { writer.write(&mail).await.unwrap() });
        // The transaction has looked for the account, and waits for its lock.
        while app.db.statement_count() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tx.commit().await.unwrap();
        assert_eq!(written.await.unwrap(), None, "{template:?} on {}", world.backend);
    }
}

#[on_each_database]
async fn address_of_another_account_is_not_given_away(world: World) {
    let ada = world.user("ada").await;
    let token = link(&world, &ada.access_token, NEW).await;
    // Another user registers the address in another spelling before the link is used.
    let body = json!({"email": NEW.to_lowercase(), "password": NEW_PASSWORD, "username": "bob"});
    world.post("/v1/auth/register", &body).data().await;
    let taken = confirm(&world, &token, PASSWORD).send().await;
    assert_page(&taken, 409, "This address belongs to another account");
    assert_eq!(text(&world.get("/v1/auth/me").bearer(&ada.access_token).data().await["user"], "email"), OLD);
    login(&world, NEW, NEW_PASSWORD).data().await;
    assert!(entries(&world, "user.email_changed").await.is_empty());
    assert_eq!(mails(&world, OLD, CHANGED).await.len(), 0);
}

/// The link confirms the reader's address, and the password confirms that the account is theirs.
#[on_each_database]
async fn invitations_for_the_new_address_are_accepted(world: World) {
    let (owner, ada) = (world.user("owner").await, world.unverified_user("ada").await);
    let place = world.place(&owner, "Acme").await;
    let folded = NEW.to_lowercase();
    world.insert_invitation(&place, (NEW, &folded), OrganizationRole::Admin, owner.id).await;
    let token = link(&world, &ada.access_token, NEW).await;
    assert_page(&confirm(&world, &token, PASSWORD).send().await, 200, "Your address has changed");
    let data = world.get("/v1/organizations").bearer(&ada.access_token).data().await;
    let rows = data["organizations"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| text(row, "name")).collect::<Vec<_>>(), ["Acme"]);
    assert_eq!(rows[0]["role"], "admin");
}

/// The owner of an address that someone else requested can read the e-mail, but can't confirm the change,
/// because that needs the other person's password.
#[on_each_database]
async fn reader_of_the_mail_can_not_confirm_for_another_person(world: World) {
    let mallory = world.user("mallory").await;
    let token = link(&world, &mallory.access_token, NEW).await;
    let page = confirm(&world, &token, NEW_PASSWORD).send().await;
    assert_page(&page, 400, "Confirm your new e-mail address");
    let verify = json!({ "token": token });
    assert_eq!(world.post("/v1/auth/verify-email", &verify).refused().await, (400, "invalid_token".into()));
    let reset = json!({"token": token, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
    assert_eq!(world.post("/v1/auth/reset-password", &reset).refused().await, (400, "invalid_token".into()));
    // The address is still available for its owner.
    let body = json!({"email": NEW, "password": NEW_PASSWORD, "username": "owner"});
    world.post("/v1/auth/register", &body).data().await;
}

#[on_each_database]
async fn concurrent_confirmations_change_the_address_once(world: World) {
    let twins = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let token = link(&world, &ada.access_token, NEW).await;
    let confirmations: Vec<_> = (0..6)
        .map(|number| {
            let fields = [("token", token.as_str()), ("password", PASSWORD)];
            let call = twins[number % 2].call(Method::POST, "/change-email").form(&fields);
            tokio::spawn(call.send())
        })
        .collect();
    let mut done = 0;
    for confirmation in confirmations {
        let answer = confirmation.await.unwrap();
        assert!([200, 400].contains(&answer.status), "{}", answer.text);
        done += usize::from(answer.status == 200);
    }
    assert_eq!(done, 1);
    assert_eq!(entries(&world, "user.email_changed").await.len(), 1);
}
