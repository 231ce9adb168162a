//! Rules for finding the account of a sign-on: the whole table is tested with a real provider.

use serde_json::json;
use tollkeeper::clock::Clock;
use tollkeeper::db::sql;

use super::{FILE, START, connected, person, subjects, username, with_provider};
use support::identity_provider::{Jar, ProvidersFile, RealProvider};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

/// Each row: whether the identity is known, its e-mail claim, and the account with the address; then the
/// outcome with each setting of [`OPTIONS`].
const TABLE: &str = "
    known    verified    none        sign_in  sign_in  sign_in  sign_in
    known    verified    unverified  sign_in  sign_in  sign_in  sign_in
    known    verified    verified    sign_in  sign_in  sign_in  sign_in
    known    unverified  none        sign_in  sign_in  sign_in  sign_in
    known    unverified  unverified  sign_in  sign_in  sign_in  sign_in
    known    unverified  verified    sign_in  sign_in  sign_in  sign_in
    known    absent      none        sign_in  sign_in  sign_in  sign_in
    known    absent      unverified  sign_in  sign_in  sign_in  sign_in
    known    absent      verified    sign_in  sign_in  sign_in  sign_in
    unknown  verified    none        refuse   create   create   refuse
    unknown  verified    unverified  prove    prove    prove    prove
    unknown  verified    verified    confirm  confirm  connect  confirm
    unknown  unverified  none        refuse   refuse   refuse   refuse
    unknown  unverified  unverified  refuse   refuse   refuse   refuse
    unknown  unverified  verified    refuse   refuse   refuse   refuse
    unknown  absent      none        refuse   refuse   refuse   refuse
    unknown  absent      unverified  refuse   refuse   refuse   refuse
    unknown  absent      verified    refuse   refuse   refuse   refuse
";

const OPTIONS: [&str; 4] = [
    "link = \"confirm\"\nprovision = \"none\"\ndomains = [\"example.com\"]",
    "link = \"confirm\"\nprovision = \"any\"",
    "link = \"verified_email\"\nprovision = \"domain\"\ndomains = [\"example.com\"]",
    "link = \"verified_email\"\nprovision = \"invited\"\ndomains = [\"other.example\"]",
];

/// Returns the outcome of a case. `words` are the first three columns of its row.
async fn outcome(world: &World, real: &RealProvider, name: &str, words: &[&str]) -> &'static str {
    let [identity, email_claim, account] = words else { panic!("{words:?}") };
    let email = format!("{name}@example.com");
    let subject = format!("subject-of-{name}");
    let known = match *identity {
        "known" => {
            let user = world.user(&format!("{name}-known")).await;
            world.connection(user.id, &real.issuer, &subject).await;
            Some(user.id)
        }
        _ => None,
    };
    let holder = match *account {
        "verified" => Some(world.user(name).await.id),
        "unverified" => Some(world.unverified_user(name).await.id),
        _ => None,
    };
    let mut claims = json!({"sub": subject});
    if *email_claim != "absent" {
        claims["email"] = email.into();
        claims["email_verified"] = (*email_claim == "verified").into();
    }
    let mut jar = Jar::default();
    let started = jar.click(world, START).await;
    assert_eq!(started.status, 303, "{}", started.text);
    let url = real.visit(started.header("location"), &claims).await;
    let path = url.split_once("/console").map(|(_, path)| format!("/console{path}")).unwrap();
    let answer = jar.get(world, &path).await;
    let is_signed_in = jar.0.contains_key("tollkeeper");
    let user = connected(world, &real.issuer, &subject).await;
    match (answer.status, answer.header("location")) {
        (403, _) => {
            assert!(
                !is_signed_in && user.is_none() && answer.text.contains("You don’t have an account"),
                "{}",
                answer.text
            );
            "refuse"
        }
        (303, "/console/sign-in/confirm") => {
            assert!(!is_signed_in && user.is_none());
            let page = jar.get(world, "/console/sign-in/confirm").await.text;
            assert!(page.contains("An account with this address already exists"), "{page}");
            if page.contains("Send the link") { "prove" } else { "confirm" }
        }
        (303, "/console/") => {
            assert!(is_signed_in);
            let user = user.unwrap();
            let signed_in = jar.who(world).await.unwrap();
            assert_eq!(signed_in["user"]["id"], user.to_string());
            if known.is_some() {
                assert_eq!(known, Some(user));
                "sign_in"
            } else if holder == Some(user) {
                "connect"
            } else {
                assert_eq!(holder, None);
                "create"
            }
        }
        other => panic!("{name} {words:?}: {other:?} {}", answer.text),
    }
}

#[on_each_database]
fn table_of_linking_holds_with_a_real_provider(database: Database) {
    let Some(real) = RealProvider::start("http://127.0.0.1:8080/console/sign-in/acme/callback") else {
        return;
    };
    let file = ProvidersFile::new();
    database.run(&[(FILE, &file.path())], async |world| {
        // The provider uses the machine's clock.
        world.clock.advance_ms(Clock::System.now().unix_ms() - world.clock.now().unix_ms());
        let mut cases = 0;
        for (number, option) in OPTIONS.iter().enumerate() {
            file.write(&world, &[("acme", &real.issuer, option)]);
            for (row, text) in TABLE.trim().lines().enumerate() {
                let words: Vec<_> = text.split_whitespace().collect();
                let name = format!("{}-r{row}-o{number}", world.backend);
                let found = outcome(&world, &real, &name, &words[..3]).await;
                assert_eq!(found, words[3 + number], "{text}\n{option}");
                cases += 1;
                world.clock.advance_ms(Clock::System.now().unix_ms() - world.clock.now().unix_ms());
            }
        }
        assert_eq!(cases, 72);
    });
}

const CONFIRM: &str = "/console/sign-in/confirm";
const YES: &str = "/console/account/connections/confirm";

#[on_each_database]
fn a_conflict_ends_with_the_password_in_this_browser(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        let mut jar = Jar::default();
        let answer = provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        assert_eq!(answer.header("location"), CONFIRM);
        // A wrong password changes nothing.
        assert_eq!(jar.sign_in(&world, "ada@example.com", "wrong").await.status, 401);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
        let answer = jar.sign_in(&world, "ada@example.com", PASSWORD).await;
        assert_eq!(answer.header("location"), YES);
        // Signing in doesn't confirm the connection: the user at the provider may be someone else.
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
        let answer = jar.post(&world, YES, &[]).await;
        assert_eq!(answer.header("location"), "/console/account/connections?done=connected");
        assert_eq!(connected(&world, &provider.issuer, "1").await, Some(ada.id));
        assert!(!jar.0.contains_key("tollkeeper-connection"));
        assert_eq!(subjects(&world, "ada@example.com").await, ["A sign-in method was added to your account"]);
        // From then on, a sign-on with the provider is enough.
        let mut other = Jar::default();
        let answer = provider.sign_on(&world, &mut other, START, &person("1", "new@example.com")).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/"), "{}", answer.text);
        assert_eq!(username(&world, &mut other).await, "ada");
    });
}

#[on_each_database]
fn a_conflict_isnt_solved_by_another_person_another_browser_or_later(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        world.user("ada").await;
        world.user("eve").await;
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        let mut eve = jar.clone();
        eve.sign_in(&world, "eve@example.com", PASSWORD).await;
        assert_eq!(username(&world, &mut eve).await, "eve");
        assert!(!eve.0.contains_key("tollkeeper-connection"));
        // A copy of the other browser's cookie doesn't help either.
        eve.0.insert("tollkeeper-connection".to_owned(), jar.0["tollkeeper-connection"].clone());
        assert_eq!(eve.post(&world, YES, &[]).await.header("location"), "/console/account/connections");
        let mut elsewhere = Jar::default();
        elsewhere.sign_in(&world, "ada@example.com", PASSWORD).await;
        let mut later = jar.clone();
        world.clock.advance_ms(10 * 60_000);
        later.sign_in(&world, "ada@example.com", PASSWORD).await;
        assert_eq!(later.get(&world, CONFIRM).await.header("location"), "/console/sign-in");
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
    });
}

#[on_each_database]
fn an_address_that_was_never_verified_is_its_readers(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let squatter = world.unverified_user("ada").await;
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        let page = jar.get(&world, CONFIRM).await.text;
        assert!(page.contains("Send the link") && !page.contains("type=\"password\""), "{page}");
        // A login with the squatter's password doesn't connect the identity.
        let mut theirs = jar.clone();
        theirs.sign_in(&world, "ada@example.com", PASSWORD).await;
        assert_eq!(theirs.post(&world, YES, &[]).await.status, 403);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
        let answer = jar.post(&world, CONFIRM, &[]).await;
        assert_eq!(answer.header("location"), "/console/sign-in?done=reset_requested");
        let token = world.mailed_token("ada@example.com").await;
        const NEW: &str = "Violet-Kettle-Orbit-9";
        let body = json!({"token": token, "password": NEW, "password_confirmation": NEW});
        world.post("/v1/auth/reset-password", &body).data().await;
        // The squatter has lost all access.
        let refused = world.get("/v1/auth/me").bearer(&squatter.access_token).refused().await;
        assert_eq!(refused.1, "invalid_access_token");
        jar.sign_in(&world, "ada@example.com", NEW).await;
        jar.post(&world, YES, &[]).await;
        assert_eq!(connected(&world, &provider.issuer, "1").await, Some(squatter.id));
    });
}

#[on_each_database]
fn a_username_never_says_who_somebody_is(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let ada = world.user("ada").await;
        for (sub, expected) in [("1", "ada2"), ("2", "ada3")] {
            let mut claims = person(sub, &format!("someone{sub}@example.org"));
            claims["preferred_username"] = "ada".into();
            let mut jar = Jar::default();
            provider.sign_on(&world, &mut jar, START, &claims).await;
            assert_eq!(username(&world, &mut jar).await, expected);
            assert_ne!(connected(&world, &provider.issuer, sub).await, Some(ada.id));
        }
    });
}

#[on_each_database]
fn an_invitation_lets_its_guest_in(database: Database) {
    with_provider(database, "provision = \"invited\"", async |world, provider, _| {
        let owner = world.user("owner").await;
        let place = world.place(&owner, "acme").await;
        let guest = person("1", "Guest@example.org");
        let mut jar = Jar::default();
        let answer = provider.sign_on(&world, &mut jar, START, &guest).await;
        assert_eq!(answer.status, 403);
        let invitation = json!({"email": "guest@example.org", "role": "admin"});
        let path = format!("{}/invitations", place.organization_path());
        world.post(&path, &invitation).bearer(&owner.access_token).data().await;
        let answer = provider.sign_on(&world, &mut jar, START, &guest).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        let data = jar.who(&world).await.unwrap();
        assert_eq!(data["user"]["email"], "Guest@example.org");
        assert_eq!(data["organizations"][0]["role"], "admin");
        let (hash,): (Option<String>,) =
            sql("SELECT password_hash FROM users WHERE email_folded = 'guest@example.org'")
                .one(&mut world.app.db.read().await.unwrap())
                .await
                .unwrap();
        assert_eq!(hash, None);
    });
}
