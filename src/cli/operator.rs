//! `tollkeeper operator …`

use accounts::store::users::administration::Filter;
use clap::Subcommand;
use operators::roles;
use trail::Trail;

use super::user::{self, OneUser};
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the operators of this installation, oldest account first
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Grant a user operator access: they see the pages under /console/installation once they have a second
    /// factor. Their sessions end
    Grant {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a user's operator access; their sessions end
    Revoke {
        #[command(flatten)]
        user: OneUser,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = &super::app(config).await?;
        let (operators, trail) = (&app.operators, &Trail::operator());
        match command {
            Command::List { json } => {
                user::list(app, &Filter { is_operator: true, ..Filter::default() }, *json).await
            }
            Command::Grant { user, json } => {
                let id = user.find(app).await?.id;
                user::print_change(roles::grant(operators, id, trail).await, *json, |change| {
                    if change.was_unchanged { "was already an operator" } else { "is now an operator" }
                        .to_owned()
                })
            }
            Command::Revoke { user, json } => {
                let id = user.find(app).await?.id;
                user::print_change(roles::revoke(operators, id, trail).await, *json, |change| {
                    if change.was_unchanged { "was not an operator" } else { "is no longer an operator" }
                        .to_owned()
                })
            }
        }
    })
}
