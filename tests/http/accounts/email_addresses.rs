//! Equal and refused e-mail addresses and usernames.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::OrganizationRole;

use support::on_each_database;
use support::world::{PASSWORD, World};

/// A domain with a Greek word, and another one that differs in its last letter.
const MEDIAL: &str = "οδοσ.gr";
const FINAL: &str = "οδος.gr";
/// [`FINAL`] in the form that the DNS uses.
const FINAL_IN_DNS: &str = "xn--pxavbm.gr";

async fn register(world: &World, email: &str, username: &str) {
    let body = json!({"email": email, "password": PASSWORD, "username": username});
    world.post("/v1/auth/register", &body).data().await;
    // File names of e-mails contain the time, so two e-mails need different times.
    let token = world.mailed_token(&format!("Hi {username},")).await;
    world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
    world.clock.advance_ms(1);
}

async fn organizations(world: &World, email: &str) -> usize {
    let body = json!({"email": email, "password": PASSWORD});
    let login = world.post("/v1/auth/login", &body).data().await;
    let token = login["access_token"].as_str().unwrap();
    world.get("/v1/organizations").bearer(token).data().await["organizations"].as_array().unwrap().len()
}

#[on_each_database]
async fn domains_with_and_without_a_final_sigma_differ(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    register(&world, &format!("maria@{MEDIAL}"), "maria").await;
    let path = format!("{}/invitations", place.organization_path());
    let body = json!({"email": format!("maria@{FINAL}"), "role": "admin"});
    world.post(&path, &body).bearer(&ada.access_token).data().await;
    let token = world.mailed_token("Invitation to Acme").await;
    let mails = std::fs::read_dir(world.data_dir.join("mail")).unwrap();
    let texts = mails.map(|mail| std::fs::read_to_string(mail.unwrap().path()).unwrap());
    let invitation = texts.into_iter().find(|text| text.contains("Invitation to Acme")).unwrap();
    assert!(!invitation.contains("Hi maria"), "the invitation is for another user: {invitation}");

    assert_eq!(organizations(&world, &format!("maria@{MEDIAL}")).await, 0);
    let page = world.call(Method::POST, "/invitations/accept").form(&[("token", &token)]).send().await;
    assert!(page.text.contains("<h1>Create your account first</h1>"), "{}", page.text);

    register(&world, &format!("maria@{FINAL}"), "maria-of-the-other").await;
    assert_eq!(organizations(&world, &format!("maria@{FINAL}")).await, 1);
    assert_eq!(organizations(&world, &format!("maria@{MEDIAL}")).await, 0);
}

#[on_each_database]
async fn unicode_and_dns_forms_of_a_domain_are_equal(world: World) {
    register(&world, &format!("Maria@{FINAL}"), "maria").await;
    for same in
        [format!("maria@{FINAL_IN_DNS}"), "maria@ΟΔΟΣ.GR".replace("Σ.", "ς."), format!("MARIA@{FINAL}")]
    {
        assert_eq!(organizations(&world, &same).await, 0, "{same}");
    }
    let body = json!({"email": format!("maria@{FINAL_IN_DNS}"), "password": PASSWORD, "username": "maria2"});
    let refused = world.post("/v1/auth/register", &body).refused().await;
    assert_eq!(refused, (409, "email_taken".to_owned()));
}

#[on_each_database]
async fn invitation_is_sent_to_the_address_as_typed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    world.user("guest").await;
    let path = format!("{}/invitations", place.organization_path());
    let body = json!({"email": "Guest@Example.com"});
    world.post(&path, &body).bearer(&ada.access_token).data().await;
    world.mailed_token("To: Guest@Example.com").await;
    assert_eq!(organizations(&world, "guest@example.com").await, 1);
}

async fn folded(app: &App, email: &str) -> String {
    let mut tx = app.db.read().await.unwrap();
    let (folded,): (String,) =
        sql("SELECT email_folded FROM users WHERE email = $1").bind(email).one(&mut tx).await.unwrap();
    folded
}

async fn run(app: &App, text: &str) {
    let mut tx = app.db.write().await.unwrap();
    sql(text.to_owned()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Repeats the step of the migration that lists rows of older versions, so that the next start finds them.
async fn list_addresses_to_fold(world: &World) {
    run(&world.app, "DROP TABLE addresses_to_fold").await;
    let file = format!("crates/db/migrations/{}/0012_addresses_to_fold.sql", world.backend);
    let step = std::fs::read_to_string(file).unwrap();
    for statement in step.split(';').filter(|statement| !statement.trim().is_empty()) {
        run(&world.app, statement).await;
    }
}

#[on_each_database]
async fn start_folds_addresses_of_older_versions(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let maria = format!("maria@{FINAL}");
    register(&world, &maria, "maria").await;
    register(&world, "Jörg@Straße.example", "joerg").await;
    register(&world, &format!("eve@{FINAL}"), "eve").await;
    let invited = format!("nikos@{FINAL}");
    let path = format!("{}/invitations", place.organization_path());
    let body = json!({ "email": invited });
    world.post(&path, &body).bearer(&ada.access_token).data().await;
    world.mailed_token("Invitation to Acme").await;
    world.clock.advance_ms(1);
    run(&world.app, "UPDATE users SET email_folded = 'maria@οδοσ.gr' WHERE username = 'maria'").await;
    // Two accounts for one mailbox: the older one keeps the address.
    run(
        &world.app,
        "UPDATE users SET email = 'EVE@οδος.gr', email_folded = 'eve@οδοσ.gr' WHERE username = 'eve'",
    )
    .await;
    register_as_older_version(&world, "eve@xn--pxavbm.gr", "eve2").await;
    run(&world.app, "UPDATE invitations SET email_folded = 'nikos@οδοσ.gr'").await;

    list_addresses_to_fold(&world).await;
    world.app.boot().await.unwrap();

    assert_eq!(folded(&world.app, &maria).await, maria);
    assert_eq!(folded(&world.app, "Jörg@Straße.example").await, "jörg@straße.example");
    assert_eq!(folded(&world.app, "EVE@οδος.gr").await, format!("eve@{FINAL}"));
    assert_eq!(
        folded(&world.app, "eve@xn--pxavbm.gr").await,
        "eve@xn--pxavbm.gr",
        "the older account has it"
    );
    assert_eq!(organizations(&world, &maria).await, 0);
    register(&world, &invited, "nikos").await;
    assert_eq!(organizations(&world, &invited).await, 1);
    // The second start has nothing left to do.
    let mut tx = world.app.db.read().await.unwrap();
    let (left,): (i64,) = sql("SELECT COUNT(*) FROM addresses_to_fold").one(&mut tx).await.unwrap();
    assert_eq!(left, 0);
}

/// Inserts an account as an older version wrote it: the folded address is only lower-cased.
async fn register_as_older_version(world: &World, email: &str, username: &str) {
    let now = world.clock.now();
    let new = tollkeeper::accounts::store::users::NewUser {
        id: tollkeeper::ids::UserId::new(now, &world.app.random),
        email,
        email_folded: email,
        username,
        username_folded: username,
        full_name: None,
        phone: None,
        password_hash: Some("$argon2id$"),
    };
    let mut tx = world.app.db.write().await.unwrap();
    tollkeeper::accounts::store::users::insert(&mut tx, &new, now).await.unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
async fn older_of_two_invitations_for_one_mailbox_stays(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut ids = Vec::new();
    for (email, folded) in [("a@οδος.gr", "a@οδοσ.gr"), ("a@xn--pxavbm.gr", "a@xn--pxavbm.gr")] {
        let role = OrganizationRole::Member;
        ids.push(world.insert_invitation(&place, (email, folded), role, ada.id).await);
        world.clock.advance_ms(1);
    }
    list_addresses_to_fold(&world).await;
    world.app.boot().await.unwrap();
    let mut tx = world.app.db.read().await.unwrap();
    let open =
        tollkeeper::tenants::store::invitations::open_for_address(&mut tx, "a@οδος.gr", world.clock.now())
            .await
            .unwrap();
    assert_eq!(open.iter().map(|one| one.id).collect::<Vec<_>>(), ids[..1]);
    let open = tollkeeper::tenants::store::invitations::open_for_address(
        &mut tx,
        "a@xn--pxavbm.gr",
        world.clock.now(),
    )
    .await
    .unwrap();
    assert!(open.is_empty());
}

#[on_each_database]
async fn undeliverable_addresses_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let invitations = format!("{}/invitations", place.organization_path());
    for email in ["\"a,b\"@example.com", "\"a@b\"@example.com", "a@xn--a.example", "a@\u{2488}com"] {
        let body = json!({"email": email, "password": PASSWORD, "username": "eve"});
        let refused = world.post("/v1/auth/register", &body).send().await;
        assert_eq!(
            (refused.status, refused.details()),
            (400, vec!["email invalid_email".to_owned()]),
            "{email}"
        );
        let invite = world.post(&invitations, &json!({ "email": email })).bearer(&ada.access_token);
        let refused = invite.send().await;
        assert_eq!(
            (refused.status, refused.details()),
            (400, vec!["email invalid_email".to_owned()]),
            "{email}"
        );
    }
}

/// Registers with this username; returns `ok`, or code and field of the error.
async fn registered_as(world: &World, number: usize, username: &str) -> Value {
    let body = json!({"email": format!("p{number}@example.com"), "password": PASSWORD, "username": username});
    let answer = world.post("/v1/auth/register", &body).send().await;
    if answer.status == 200 { json!("ok") } else { json!(answer.details()) }
}

#[on_each_database]
async fn reserved_and_mixed_script_names_are_refused(world: World) {
    for (number, (username, expected)) in [
        ("admin", json!(["username reserved"])),
        ("Admin", json!(["username reserved"])),
        ("ＳＹＳＴＥＭ", json!(["username reserved"])),
        ("anonymous", json!(["username reserved"])),
        ("post.master", json!(["username reserved"])),
        ("tollkeeper", json!(["username reserved"])),
        ("аdmin", json!(["username mixed_scripts"])),
        ("pаypal", json!(["username mixed_scripts"])),
        ("Ωmega", json!(["username mixed_scripts"])),
        ("admin2.of.the.shop", json!("ok")),
        ("иван_1", json!("ok")),
        ("王さんabc", json!("ok")),
        ("ada-王小明", json!("ok")),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(registered_as(&world, number, username).await, expected, "{username}");
    }
    // Existing accounts with a refused username still work.
    world.user("root").await;
    assert_eq!(organizations(&world, "root@example.com").await, 0);
}
