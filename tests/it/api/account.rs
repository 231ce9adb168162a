//! What people change about their own account, over HTTP (docs/contract/accounts.md).

mod me;
mod sessions;

use serde_json::{Value, json};
use tollkeeper::trail::{self, Filter};

use crate::support::http::Call;
use crate::support::world::World;

/// Returns the audit entries of this action as actor and target, sorted.
async fn entries(world: &World, action: &str) -> Vec<[String; 2]> {
    let filter = Filter { action: action.to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let mut entries: Vec<_> = found.into_iter().map(|entry| [entry.actor, entry.target]).collect();
    entries.sort();
    entries
}

fn login(world: &World, email: &str, password: &str) -> Call {
    world.post("/v1/auth/login", &json!({"email": email, "password": password}))
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap().to_owned()
}
