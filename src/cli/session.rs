//! `tollkeeper session …`

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::Config;
use accounts::{profiles, sessions};
use kernel::ids::UserId;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// End sessions on all running servers within a second: their users must log in again
    End {
        #[command(flatten)]
        target: Target,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Target {
    /// End the sessions of all users
    #[arg(long)]
    all: bool,
    /// End the sessions of one user, by id or e-mail address
    #[arg(long, value_name = "ID_OR_EMAIL")]
    user: Option<String>,
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::End { target, json: as_json } = command;
    let (user_id, sessions) = super::runtime()?.block_on(end(config, target))?;
    super::print(&if *as_json {
        json!({ "user_id": user_id, "sessions": sessions }).to_string()
    } else if sessions == 0 {
        "No session was open.".to_owned()
    } else {
        format!(
            "Ended {sessions} sessions. Their tokens are rejected by all running servers within a second."
        )
    });
    Ok(())
}

async fn end(config: Config, target: &Target) -> Result<(Option<UserId>, u64), String> {
    let accounts = super::app(config).await?.accounts.clone();
    let user_id = match &target.user {
        None => None,
        Some(text) => {
            let found = profiles::find(&accounts, text).await.map_err(|error| error.to_string())?;
            let user = found.ok_or_else(|| format!("no account has the address or id {text}"))?;
            Some(user.id)
        }
    };
    let ended = sessions::end_all(&accounts, user_id).await.map_err(|error| error.to_string())?;
    Ok((user_id, ended))
}
