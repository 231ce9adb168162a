//! Sign-on with providers (docs/contract/accounts.md#sign-on-with-a-provider).

mod commands;
mod connections;
mod elsewhere;
mod github;
mod groups;
mod hostile;
mod linking;
mod proofs;
mod required;
mod sessions;
mod without_passwords;

use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::ids::UserId;

use support::Database;
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::world::World;

const START: &str = "/console/sign-in/acme";

/// The variable that names the providers file.
const FILE: &str = "TOLLKEEPER_SIGN_IN__PROVIDERS_FILE";

/// Runs a test on a database, with an identity provider in this process.
fn with_provider(
    database: Database,
    more: &str,
    test: impl AsyncFn(World, &IdentityProvider, &ProvidersFile),
) {
    let file = ProvidersFile::new();
    database.run(&[(FILE, &file.path())], async |world| {
        let provider = IdentityProvider::start().await;
        file.write(&world, &[("acme", &provider.issuer, more)]);
        test(world, &provider, &file).await;
    });
}

/// Returns the claims of a user whose address is verified.
fn person(sub: &str, email: &str) -> Value {
    json!({"sub": sub, "email": email, "email_verified": true})
}

/// Returns the account that is connected to an identity at a provider.
async fn connected(world: &World, issuer: &str, subject: &str) -> Option<UserId> {
    let mut tx = world.app.db.read().await.unwrap();
    let found = tollkeeper::accounts::store::connections::by_subject(&mut tx, issuer, subject).await.unwrap();
    found.map(|(_, user_id)| user_id)
}

/// Returns the number of live sessions.
async fn sessions(world: &World) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL").one(&mut tx).await.unwrap();
    count
}

/// Returns the username of the user who is signed in.
async fn username(world: &World, jar: &mut Jar) -> String {
    let data = jar.who(world).await.expect("a user is signed in");
    data["user"]["username"].as_str().unwrap().to_owned()
}

/// Sends due e-mails, and returns the subjects of those to an address, sorted.
async fn subjects(world: &World, to: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let texts =
        folder.into_iter().flatten().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let to = format!("To: {to}\n");
    let subject = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Subject: "));
        line.unwrap().to_owned()
    };
    let mut subjects: Vec<_> = texts.filter(|text| text.contains(&to)).map(subject).collect();
    subjects.sort();
    subjects
}
