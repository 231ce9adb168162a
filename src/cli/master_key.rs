//! `tollkeeper master-key …`

use clap::Subcommand;
use serde_json::json;

use crate::config::{Config, variable};
use keys::seals::{self, Resealed};
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Re-encrypt with `master_key_file` all stored secrets still encrypted with `master_key_previous_file`.
    /// Running servers must have both keys
    Rotate {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Rotate { json: as_json } = command;
    if config.master_key_previous.is_none() && config.master_key_previous_file.is_none() {
        return Err(format!(
            "no previous key is configured: put the new key into `master_key_file`, and set \
             `master_key_previous_file` to the file of the current key ({})",
            variable("master_key_previous_file")
        ));
    }
    let Resealed { signing_keys, api_keys, seeds, webhooks, answers, unchanged } =
        super::runtime()?.block_on(rotate(config))?;
    super::print(&if *as_json {
        json!({
            "signing_keys": signing_keys, "api_keys": api_keys, "seeds": seeds, "answers": answers,
            "already": unchanged
        })
        .to_string()
    } else {
        format!(
            "Resealed {signing_keys} signing keys, the secrets of {api_keys} API keys, the seeds of {seeds} \
             authenticator apps, the secrets of {webhooks} webhooks and {answers} stored responses; \
             {unchanged} were already sealed with the new master key."
        )
    });
    Ok(())
}

async fn rotate(config: Config) -> Result<Resealed, String> {
    let app = super::app(config).await?;
    let resealed = seals::reseal_all(&app.keys, &Trail::operator()).await;
    resealed.map_err(|error| format!("{error}; nothing was changed"))
}
