//! `tollkeeper signing-key …`

use clap::Subcommand;
use serde_json::json;

use crate::access::Trail;
use crate::config::Config;
use crate::error::Error;
use crate::live::signing_keys::SigningKeys;
use crate::store;
use crate::store::audit_log::{Action, Event};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sign new tokens with a new key; tokens of the old one stay good until they end
    Rotate {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Rotate { json } = command;
    let kid = super::runtime()?.block_on(rotate(config))?;
    super::print(&if *json {
        json!({ "kid": kid }).to_string()
    } else {
        format!("New tokens are signed with key {kid} from now on, by running servers within 5 seconds.")
    });
    Ok(())
}

async fn rotate(config: Config) -> Result<String, String> {
    let app = super::app(config).await?;
    let rotated = async {
        let mut tx = app.db.write().await?;
        let kid = SigningKeys::rotate(&app, &mut tx).await?;
        let event = Event { action: Action::SigningKeyRotated, target: kid.clone(), organization_id: None };
        store::audit_log::record(&mut tx, &Trail::operator(), &event, app.clock.now(), &app.random).await?;
        tx.commit().await?;
        Ok::<_, Error>(kid)
    };
    rotated.await.map_err(|error| error.to_string())
}
