//! Invitations to an organization: sent over HTTP, e-mailed, and accepted by link, by verification or by
//! login.

mod changes;
mod list;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::OrganizationRole::{self, Admin, Member, Owner};
use tollkeeper::trail;

use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{PASSWORD, Place, TestUser, World};

const GUEST: &str = "guest@example.com";

fn invite(world: &World, caller: &TestUser, place: &Place, body: &Value) -> Call {
    world.post(&format!("{}/invitations", place.organization_path()), body).bearer(&caller.access_token)
}

async fn send_invitation(world: &World, caller: &TestUser, place: &Place, body: Value) -> String {
    invite(world, caller, place, &body).data().await;
    let token = world.mailed_token(body["email"].as_str().unwrap()).await;
    // File names of e-mails contain the time, so two e-mails need different times.
    world.clock.advance_ms(1);
    token
}

async fn accept_by_link(world: &World, token: &str) -> Answer {
    world.call(Method::POST, "/invitations/accept").form(&[("token", token)]).send().await
}

fn assert_page(answer: &Answer, status: u16, title: &str) {
    let heading = format!("<h1>{title}</h1>");
    assert_eq!((answer.status, answer.text.contains(&heading)), (status, true), "{heading}: {}", answer.text);
}

async fn add_member(world: &World, place: &Place, name: &str, role: OrganizationRole) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, role).await;
    user
}

async fn register(world: &World, name: &str) {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    world.post("/v1/auth/register", &body).data().await;
}

async fn verify(world: &World, name: &str) {
    let token = world.mailed_token(&format!("{name}@example.com")).await;
    world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
}

/// Returns `Name=role` of the organizations that a user sees after a login.
async fn organizations_after_login(world: &World, name: &str) -> String {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD});
    let token = world.post("/v1/auth/login", &body).data().await["access_token"].as_str().unwrap().to_owned();
    organizations(world, &token).await
}

async fn organizations(world: &World, token: &str) -> String {
    let data = world.get("/v1/organizations").bearer(token).data().await;
    let rows = data["organizations"].as_array().unwrap().clone();
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| format!("{}={}", row["name"].as_str().unwrap(), row["role"].as_str().unwrap()))
        .collect();
    rows.sort();
    rows.join(" ")
}

async fn members_count(world: &World, user: &TestUser, place: &Place) -> i64 {
    let data = world.get(&place.organization_path()).bearer(&user.access_token).data().await;
    data["members_count"].as_i64().unwrap()
}

fn mails(world: &World) -> Vec<String> {
    let Ok(folder) = std::fs::read_dir(world.data_dir.join("mail")) else { return Vec::new() };
    folder.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

#[on_each_database]
async fn link_makes_an_account_a_member_once(world: World) {
    let (ada, guest) = (world.user("ada").await, world.user("guest").await);
    let place = world.place(&ada, "Acme").await;
    let body = json!({"email": "Guest@Example.com", "role": "admin", "message": "Come!"});
    let made = invite(&world, &ada, &place, &body).data().await;
    let id = made["invitation_id"].as_str().unwrap();
    assert!(id.starts_with("inv_"), "{id}");
    let due = json!({"invitation_id": id, "email": "Guest@Example.com", "role": "admin",
        "expires_at": "2026-03-17T12:00:00.000Z", "status": "pending"});
    assert_eq!(made, due);
    let token = world.mailed_token("To: Guest@Example.com").await;
    let statements = world.app.db.statement_count();
    for _ in 0..10 {
        let page = world.get(&format!("/invitations/accept?token={token}")).send().await;
        assert_page(&page, 200, "Accept the invitation");
        assert!(page.text.contains("<form method=\"post\" action=\"accept\">"), "{}", page.text);
    }
    assert_eq!(world.app.db.statement_count(), statements, "a look asks the database nothing");
    assert_eq!(organizations(&world, &guest.access_token).await, "");

    let page = accept_by_link(&world, &format!(" {token}\r\n")).await;
    assert_page(&page, 200, "You’re a member");
    assert!(page.text.contains("You’re now a member of Acme."), "{}", page.text);
    assert_eq!(organizations(&world, &guest.access_token).await, "Acme=admin");
    assert_eq!(members_count(&world, &ada, &place).await, 2);
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
    assert_page(&accept_by_link(&world, &"A".repeat(43)).await, 400, "This link no longer works");
}

#[on_each_database]
async fn new_account_becomes_a_member_after_verification(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Second").await);
    let token = send_invitation(&world, &ada, &place, json!({"email": GUEST})).await;
    send_invitation(&world, &ada, &other, json!({"email": GUEST, "role": "owner"})).await;
    for _ in 0..2 {
        let page = accept_by_link(&world, &token).await;
        assert_page(&page, 200, "Create your account first");
        assert!(page.text.contains(&format!("The invitation is for {GUEST},")), "{}", page.text);
    }
    register(&world, "guest").await;
    // Until the address is confirmed, the account may be anyone's.
    assert_page(&accept_by_link(&world, &token).await, 200, "Confirm your address first");
    assert_eq!(organizations_after_login(&world, "guest").await, "");
    assert_eq!(members_count(&world, &ada, &place).await, 1);
    verify(&world, "guest").await;
    assert_eq!(organizations_after_login(&world, "guest").await, "Acme=member Second=owner");
    assert_eq!(members_count(&world, &ada, &place).await, 2);
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
}

#[on_each_database]
async fn verification_page_accepts_invitations(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    send_invitation(&world, &ada, &place, json!({"email": GUEST})).await;
    register(&world, "guest").await;
    let token = world.mailed_token(GUEST).await;
    let fields = [("token", token.as_str()), ("password", PASSWORD)];
    let page = world.call(Method::POST, "/verify-email").form(&fields).send().await;
    assert_page(&page, 200, "Your address is confirmed");
    assert_eq!(members_count(&world, &ada, &place).await, 2);
}

#[on_each_database]
async fn next_login_accepts_invitations(world: World) {
    let (ada, guest) = (world.user("ada").await, world.user("guest").await);
    let place = world.place(&ada, "Acme").await;
    let token = send_invitation(&world, &ada, &place, json!({"email": "GUEST@example.com"})).await;
    assert_eq!(organizations(&world, &guest.access_token).await, "", "not before");
    let wrong = json!({"email": GUEST, "password": "Wrong-Password-7"});
    assert_eq!(world.post("/v1/auth/login", &wrong).refused().await.0, 401);
    assert_eq!(organizations(&world, &guest.access_token).await, "");
    assert_eq!(organizations_after_login(&world, "guest").await, "Acme=member");
    assert_eq!(organizations_after_login(&world, "guest").await, "Acme=member");
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
    let filter = trail::Filter { action: "invitation.accepted".into(), limit: 9, ..Default::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = trail::list(&mut tx, &filter).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].actor, guest.id.to_string());
    assert_eq!(entries[0].organization_id.unwrap().to_string(), place.organization);
}

#[on_each_database]
async fn invitation_without_a_role_gives_the_default_role(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = |name: &str| json!({"email": format!("{name}@example.com"), "role": null, "message": null});
    assert_eq!(invite(&world, &ada, &place, &body("one")).data().await["role"], "member");
    let patch = json!({"settings": {"default_role": "admin"}});
    world.call(Method::PUT, &place.organization_path()).bearer(&ada.access_token).json(&patch).data().await;
    assert_eq!(invite(&world, &ada, &place, &body("two")).data().await["role"], "admin");
}

/// The caller's role, and the statuses of inviting an owner, an admin and a member.
#[rustfmt::skip]
const INVITE_STATUSES: [(OrganizationRole, [u16; 3]); 3] = [
    //       owner admin member
    (Owner,  [200, 200, 200]),
    (Admin,  [403, 200, 200]),
    (Member, [403, 403, 403]),
];

#[on_each_database]
async fn inviter_must_be_allowed_to_grant_the_role(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for (caller, due) in INVITE_STATUSES {
        let user = add_member(&world, &place, caller.as_str(), caller).await;
        for (role, status) in [Owner, Admin, Member].into_iter().zip(due) {
            let email = format!("{}-{}@example.com", caller.as_str(), role.as_str());
            let body = json!({"email": email, "role": role.as_str()});
            let answer = invite(&world, &user, &place, &body).send().await;
            assert_eq!(answer.status, status, "{caller:?} invites {role:?}: {}", answer.text);
            world.user(email.split('@').next().unwrap()).await;
            let due = if status == 200 { format!("Acme={}", role.as_str()) } else { String::new() };
            assert_eq!(organizations_after_login(&world, email.split('@').next().unwrap()).await, due);
        }
    }
}

#[on_each_database]
async fn address_has_one_open_invitation_at_a_time(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    let first = send_invitation(&world, &ada, &place, json!({"email": GUEST, "role": "admin"})).await;
    let again = invite(&world, &ada, &place, &json!({"email": "GUEST@EXAMPLE.COM"})).send().await;
    assert_eq!((again.status, again.code().as_str()), (409, "already_invited"));
    assert_eq!(again.details(), ["email already_invited"]);
    send_invitation(&world, &ada, &other, json!({"email": GUEST})).await;
    for (email, user) in [("ada@example.com", "oneself"), ("Ada@Example.com", "a member")] {
        let member = invite(&world, &ada, &place, &json!({ "email": email })).send().await;
        assert_eq!((member.status, member.code().as_str()), (409, "already_member"), "{user}");
        assert_eq!(member.details(), ["email already_member"]);
    }
    // After the invitation expires, a new one replaces it, and the old link is invalid.
    world.clock.advance_ms(7 * DAY_MS - 3);
    assert_eq!(invite(&world, &ada, &place, &json!({"email": GUEST})).refused().await.0, 401, "a new login");
    let ada = TestUser { access_token: new_session(&world, &ada).await, ..ada };
    assert_eq!(invite(&world, &ada, &place, &json!({"email": GUEST})).refused().await.0, 409);
    world.clock.advance_ms(1);
    let second = send_invitation(&world, &ada, &place, json!({"email": GUEST, "role": "member"})).await;
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &first).await, 400, "This link no longer works");
    assert_page(&accept_by_link(&world, &second).await, 200, "You’re a member");
    let role = world.get(&format!("{}/members?role=admin", place.organization_path()));
    assert_eq!(role.bearer(&ada.access_token).data().await["total"], 0);
}

async fn new_session(world: &World, user: &TestUser) -> String {
    world.token(tollkeeper::accounts::jwt::TokenKind::Access, user.id, user.session_id, 3600).await
}

#[on_each_database]
async fn invitation_expires_after_seven_days(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    invite(&world, &ada, &place, &json!({"email": GUEST})).data().await;
    let token = world.mailed_token(GUEST).await;
    world.clock.advance_ms(7 * DAY_MS);
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
    assert_eq!(organizations_after_login(&world, "guest").await, "");
    world.clock.advance_ms(-1);
    assert_page(&accept_by_link(&world, &token).await, 200, "You’re a member");
}

#[on_each_database]
async fn invitation_ends_when_its_sender_loses_the_right(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let member = |user: &TestUser| format!("{}/members/{}", place.organization_path(), user.id);
    let role = |user: &TestUser, role: &str| {
        world.call(Method::PUT, &member(user)).bearer(&ada.access_token).json(&json!({ "role": role }))
    };
    let mut tokens = Vec::new();
    for (name, sender) in [("gone", Admin), ("demoted", Admin), ("halved", Owner), ("kept", Owner)] {
        let sender = add_member(&world, &place, name, sender).await;
        let email = |kind: &str| format!("{name}-{kind}@example.com");
        let top = if name == "gone" || name == "demoted" { "admin" } else { "owner" };
        let high =
            send_invitation(&world, &sender, &place, json!({"email": email("high"), "role": top})).await;
        let low =
            send_invitation(&world, &sender, &place, json!({"email": email("low"), "role": "member"})).await;
        // The e-mail of this invitation hasn't been sent yet.
        invite(&world, &sender, &place, &json!({"email": email("late"), "role": top})).data().await;
        match name {
            "gone" => {
                let call = world.call(Method::DELETE, &member(&sender)).bearer(&ada.access_token);
                call.data().await;
            }
            "demoted" => drop(role(&sender, "member").data().await),
            "halved" => drop(role(&sender, "admin").data().await),
            _ => drop(role(&sender, "owner").data().await),
        }
        tokens.push((name, high, low));
    }
    let before = mails(&world).len();
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    assert_eq!(mails(&world).len() - before, 1, "ended invitations aren't mailed");
    for (name, high, low) in tokens {
        for (kind, token) in [("high", high), ("low", low)] {
            world.user(&format!("{name}-{kind}")).await;
            let works = name == "kept" || (name == "halved" && kind == "low");
            let page = accept_by_link(&world, &token).await;
            let title = if works { "You’re a member" } else { "This link no longer works" };
            assert_page(&page, if works { 200 } else { 400 }, title);
            if !works {
                assert_eq!(organizations_after_login(&world, &format!("{name}-{kind}")).await, "");
                // The address can be invited again.
                let body = json!({"email": format!("{name}-{kind}@example.com")});
                invite(&world, &ada, &place, &body).data().await;
            }
        }
    }
}

#[on_each_database]
async fn accepting_keeps_an_existing_members_role(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let token = send_invitation(&world, &ada, &place, json!({"email": GUEST, "role": "admin"})).await;
    let guest = add_member(&world, &place, "guest", Member).await;
    let page = accept_by_link(&world, &token).await;
    assert_page(&page, 200, "You’re already a member");
    assert_eq!(organizations(&world, &guest.access_token).await, "Acme=member");
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
}

#[on_each_database]
async fn removal_ends_open_invitations(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let token = send_invitation(&world, &ada, &place, json!({"email": GUEST, "role": "admin"})).await;
    let guest = add_member(&world, &place, "guest", Member).await;
    let path = format!("{}/members/{}", place.organization_path(), guest.id);
    world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
    assert_eq!(organizations_after_login(&world, "guest").await, "");
    assert_page(&accept_by_link(&world, &token).await, 400, "This link no longer works");
}

#[on_each_database]
async fn invalid_invitations_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let cases = [
        (json!({}), "email required"),
        (json!({"email": null}), "email required"),
        (json!({"email": "nobody"}), "email invalid_email"),
        (json!({"email": "a@b.example\r\nBcc: c@d.example"}), "email invalid_email"),
        (json!({"email": GUEST, "role": "king"}), "role unknown_value"),
        (json!({"email": GUEST, "message": "x".repeat(1001)}), "message too_long"),
        (json!({"email": GUEST, "message": "a\u{0}b"}), "message invalid_characters"),
        (json!({"email": GUEST, "rôle": "owner"}), "rôle unknown_field"),
    ];
    for (body, detail) in cases {
        let answer = invite(&world, &ada, &place, &body).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    assert!(mails(&world).is_empty());
}

/// Text from the inviter can't add a header, a line of the template, a token or HTML.
#[on_each_database]
async fn invitation_text_cannot_change_the_mail(world: World) {
    let ada = world.user("ada").await;
    let evil = "A\"><script>x</script> =?utf-8?q?b?=";
    let place = world.place(&ada, "Acme").await;
    let patch = json!({ "name": evil });
    world.call(Method::PUT, &place.organization_path()).bearer(&ada.access_token).json(&patch).data().await;
    let fake = "F".repeat(43);
    let message = format!("Hi <b>you</b>\r\nBcc: x@y.example\n\n.\n{fake}\nhttp://evil.example/{fake}");
    let body = json!({"email": GUEST, "message": message});
    let token = send_invitation(&world, &ada, &place, body).await;
    assert_ne!(token, fake, "the only token on a separate line is ours");
    let mail = mails(&world).pop().unwrap();
    let (head, rest) = mail.split_once("\n\n").unwrap();
    assert_eq!(head.matches("Subject:").count(), 1, "{head}");
    assert!(head.contains("Invitation to ") && !head.contains("Bcc"), "{head}");
    let (_, html) = rest.split_once("<!doctype html>").unwrap();
    assert!(!html.contains("<script") && html.contains("join A&#34;&#62;&#60;script&#62;"), "{html}");
    assert!(html.contains("Hi &#60;b&#62;you&#60;/b&#62;<br>"), "{rest}");
    for line in ["> Bcc: x@y[.]example", "> .", &format!("> {fake}"), "ada writes:"] {
        assert!(rest.lines().any(|found| found == line), "{line}: {rest}");
    }
    let link = format!("{}/invitations/accept?token={token}", world.app.api.public_url.trim_end_matches('/'));
    assert!(rest.lines().any(|line| line == link), "{rest}");
    // Only the e-mail contains the token.
    let statement = "SELECT token_hash FROM invitations";
    let mut tx = world.app.db.read().await.unwrap();
    let (hash,): (Vec<u8>,) = tollkeeper::db::sql(statement).one(&mut tx).await.unwrap();
    assert_eq!(hash, ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
}

#[on_each_database]
async fn one_of_32_concurrent_invitations_is_sent(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Admin).await;
    let body = json!({ "email": GUEST });
    let calls = (0..32).map(|n| invite(&world, if n % 2 == 0 { &ada } else { &bob }, &place, &body).send());
    let answers = join_all(calls).await;
    let count = |code: &str| answers.iter().filter(|answer| answer.text.contains(code)).count();
    assert_eq!((count("\"pending\""), count("\"already_invited\"")), (1, 31));
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    assert_eq!(mails(&world).len(), 1);
}

/// Uses the link twice, logs in twice and removes the sender at the same time: at most one membership, and no
/// error.
#[on_each_database]
async fn concurrent_acceptances_make_one_membership(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for round in 0..6 {
        let sender = add_member(&world, &place, &format!("sender{round}"), Admin).await;
        let name = format!("guest{round}");
        let body = json!({"email": format!("{name}@example.com"), "role": "admin"});
        let token = send_invitation(&world, &sender, &place, body).await;
        let guest = world.user(&name).await;
        let login = json!({"email": format!("{name}@example.com"), "password": PASSWORD});
        let before = members_count(&world, &ada, &place).await;
        let path = format!("{}/members/{}", place.organization_path(), sender.id);
        let mut calls = vec![
            world.call(Method::POST, "/invitations/accept").form(&[("token", &token)]),
            world.post("/v1/auth/login", &login),
            world.call(Method::POST, "/invitations/accept").form(&[("token", &token)]),
            world.post("/v1/auth/login", &login),
        ];
        let with_removal = round % 2 == 1;
        if with_removal {
            calls.insert(1, world.call(Method::DELETE, &path).bearer(&ada.access_token));
        }
        let answers = join_all(calls.into_iter().map(Call::send)).await;
        for answer in &answers {
            assert!([200, 400].contains(&answer.status), "{}", answer.text);
        }
        let found = organizations(&world, &guest.access_token).await;
        assert!(found == "Acme=admin" || (with_removal && found.is_empty()), "{found}");
        let due = before + i64::from(!found.is_empty()) - i64::from(with_removal);
        assert_eq!(members_count(&world, &ada, &place).await, due);
    }
}

#[on_each_database]
async fn invitation_is_audited(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let made = invite(&world, &ada, &place, &json!({"email": GUEST, "message": "secret words"})).data().await;
    let filter = trail::Filter { action: "invitation.created".into(), limit: 9, ..Default::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = trail::list(&mut tx, &filter).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].target, made["invitation_id"]);
    assert_eq!(entries[0].actor, ada.id.to_string());
    let text = serde_json::to_string(&entries).unwrap();
    assert!(!text.contains(GUEST) && !text.contains("secret"), "{text}");
}
