//! `tollkeeper session …`

use clap::{Args, Subcommand};
use serde_json::json;

use crate::access::Trail;
use crate::app::App;
use crate::config::Config;
use crate::db::Tx;
use crate::error::Error;
use crate::ids::UserId;
use crate::rules::addresses;
use crate::store;
use crate::store::audit_log::{Action, Event};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// End sessions on every running server, within a second: their users have to log in again
    End {
        #[command(flatten)]
        whose: Whose,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Whose {
    /// Everybody's
    #[arg(long)]
    all: bool,
    /// Those of one user, by id or e-mail address
    #[arg(long, value_name = "ID_OR_EMAIL")]
    user: Option<String>,
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::End { whose, json: as_json } = command;
    let (user_id, sessions) = super::runtime()?.block_on(end(config, whose))?;
    super::print(&if *as_json {
        json!({ "user_id": user_id, "sessions": sessions }).to_string()
    } else if sessions == 0 {
        "No session was open.".to_owned()
    } else {
        format!("Ended {sessions} sessions; running servers refuse their tokens within a second.")
    });
    Ok(())
}

async fn end(config: Config, whose: &Whose) -> Result<(Option<UserId>, u64), String> {
    let app = super::app(config).await?;
    let user_id = match &whose.user {
        None => None,
        Some(text) => Some(user(&app, text).await?),
    };
    let ended = async {
        let mut tx = app.db.write().await?;
        let sessions = end_sessions(&app, &mut tx, user_id).await?;
        tx.commit().await?;
        Ok::<_, Error>(sessions)
    };
    let sessions = ended.await.map_err(|error| error.to_string())?;
    Ok((user_id, sessions))
}

/// Ends the sessions of a user or everybody's and notes that in the trail; how many.
pub async fn end_sessions(app: &App, tx: &mut Tx, user_id: Option<UserId>) -> Result<u64, Error> {
    let now = app.clock.now();
    let sessions = store::sessions::end_live(tx, user_id, now).await?;
    let target = user_id.map_or_else(|| "all".to_owned(), |id| id.to_string());
    let event = Event { action: Action::SessionsEnded, target, organization_id: None };
    store::audit_log::record(tx, &Trail::operator(), &event, now, &app.random).await?;
    Ok(sessions)
}

async fn user(app: &App, text: &str) -> Result<UserId, String> {
    let found = async {
        let mut tx = app.db.read().await?;
        let user = match UserId::parse(text) {
            Some(id) => store::users::by_id(&mut tx, id).await?,
            None => store::users::by_email(&mut tx, &addresses::fold(text)).await?,
        };
        Ok::<_, Error>(user)
    };
    let user = found.await.map_err(|error| error.to_string())?;
    user.map(|user| user.id).ok_or_else(|| format!("there is no account with the address or id {text}"))
}
