//! `tollkeeper signing-key …`

use clap::Subcommand;
use serde_json::json;

use crate::access::Trail;
use crate::app::App;
use crate::config::Config;
use crate::error::Error;
use crate::live::signing_keys::SigningKeys;
use crate::store;
use crate::store::audit_log::{Action, Event};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sign new tokens with a new key; tokens of the old one stay good until they end
    Rotate {
        /// Tokens of every older key are refused at once, by every running server: for a key that somebody has stolen. It logs
        /// everybody out
        #[arg(long)]
        revoke: bool,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The outcome for the older keys.
struct Revoked {
    keys: u64,
    sessions: u64,
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Rotate { revoke, json: as_json } = command;
    let (kid, revoked) = super::runtime()?.block_on(async {
        let app = super::app(config).await?;
        let rotated = if *revoke { rotate_and_revoke(&app).await } else { rotate(&app).await };
        rotated.map_err(|error| error.to_string())
    })?;
    super::print(&match (revoked, *as_json) {
        (None, true) => json!({ "kid": kid }).to_string(),
        (Some(Revoked { keys, sessions }), true) => {
            json!({ "kid": kid, "revoked": keys, "sessions": sessions }).to_string()
        }
        (None, false) => {
            format!("New tokens are signed with key {kid} from now on, by running servers within 5 seconds.")
        }
        (Some(Revoked { keys, sessions }), false) => format!(
            "New tokens are signed with key {kid} from now on. Revoked {keys} older keys and ended {sessions} sessions; running \
             servers refuse their tokens within a second, and everybody logs in again."
        ),
    });
    Ok(())
}

async fn rotate(app: &App) -> Result<(String, Option<Revoked>), Error> {
    let mut tx = app.db.write().await?;
    let kid = SigningKeys::rotate(app, &mut tx).await?;
    let event = Event { action: Action::SigningKeyRotated, target: kid.clone(), organization_id: None };
    store::audit_log::record(&mut tx, &Trail::operator(), &event, app.clock.now(), &app.random).await?;
    tx.commit().await?;
    Ok((kid, None))
}

/// Sessions end as well: whoever has the old key can make a token for any of them, and by a token of the old key nobody gets one
/// of the new.
async fn rotate_and_revoke(app: &App) -> Result<(String, Option<Revoked>), Error> {
    let mut tx = app.db.write().await?;
    let (kid, keys) = SigningKeys::rotate_and_revoke(app, &mut tx).await?;
    let event = Event { action: Action::SigningKeysRevoked, target: kid.clone(), organization_id: None };
    let now = app.clock.now();
    store::audit_log::record(&mut tx, &Trail::operator(), &event, now, &app.random).await?;
    let sessions = super::session::end_sessions(app, &mut tx, None).await?;
    tx.commit().await?;
    Ok((kid, Some(Revoked { keys, sessions })))
}
