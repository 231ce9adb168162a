//! `tollkeeper signing-key …`

use clap::Subcommand;
use serde_json::json;

use crate::config::Config;
use accounts::signing_keys::{self, Revoked};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sign new tokens with a new key; tokens signed with the old key remain valid until they expire
    Rotate {
        /// Also reject all tokens signed with older keys, on all running servers within a second; use this if
        /// a key was stolen. All users are logged out
        #[arg(long)]
        revoke: bool,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Rotate { revoke, json: as_json } = command;
    let outcome = super::runtime()?.block_on(async {
        let accounts = super::app(config).await?.accounts.clone();
        let outcome = if *revoke {
            signing_keys::revoke(&accounts).await.map(|revoked| revoked_text(&revoked, *as_json))
        } else {
            signing_keys::rotate(&accounts).await.map(|kid| rotated_text(&kid, *as_json))
        };
        outcome.map_err(|error| error.to_string())
    })?;
    super::print(&outcome);
    Ok(())
}

fn rotated_text(kid: &str, as_json: bool) -> String {
    if as_json {
        return json!({ "kid": kid }).to_string();
    }
    format!("New tokens are signed with key {kid}. Running servers switch to it within 5 seconds.")
}

fn revoked_text(revoked: &Revoked, as_json: bool) -> String {
    let Revoked { kid, keys, sessions } = revoked;
    if as_json {
        return json!({ "kid": kid, "revoked": keys, "sessions": sessions }).to_string();
    }
    format!(
        "New tokens are signed with key {kid}. Revoked {keys} older keys and ended {sessions} sessions. \
         Running servers reject older tokens within a second, and all users have to log in again."
    )
}
