//! `tollkeeper audit-log`

use clap::Args;

use crate::config::Config;
use kernel::clock::Time;
use kernel::error::Error;

use trail::{Action, AuditEntry, Filter};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Only what this user or key did; `operator` for the command line, `system` for the service itself,
    /// `anonymous` for nobody known
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only this action, for instance `session.started`
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Option<String>,
    /// Only what was done to this thing
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only in this organization
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
    /// Only from then on: a date or a timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    since: Option<Time>,
    /// Only before then: a date or a timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    until: Option<Time>,
    /// At most so many entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    limit: i64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn action(text: &str) -> Result<String, String> {
    if Action::ALL.iter().any(|action| action.as_str() == text) {
        return Ok(text.to_owned());
    }
    let words: Vec<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
    Err(format!("the actions are: {}", words.join(", ")))
}

pub fn run(config: Config, arguments: Arguments) -> Result<(), String> {
    let as_json = arguments.json;
    let entries = super::runtime()?.block_on(list(config, arguments))?;
    for entry in entries {
        let json = || serde_json::to_string(&entry).map_err(|error| error.to_string());
        super::print(&if as_json { json()? } else { line(&entry) });
    }
    Ok(())
}

async fn list(config: Config, arguments: Arguments) -> Result<Vec<AuditEntry>, String> {
    let app = super::app(config).await?;
    let filter = Filter {
        actor: arguments.actor.unwrap_or_default(),
        action: arguments.action.unwrap_or_default(),
        target: arguments.target.unwrap_or_default(),
        organization_id: arguments.organization.unwrap_or_default(),
        since: arguments.since,
        until: arguments.until,
        limit: arguments.limit,
    };
    let listed = async {
        let mut tx = app.db.read().await?;
        Ok::<_, Error>(trail::list(&mut tx, &filter).await?)
    };
    listed.await.map_err(|error| error.to_string())
}

/// When, who, what, on what, where from, and what else is to be known.
fn line(entry: &AuditEntry) -> String {
    let from = entry.address.as_deref().unwrap_or("-");
    let detail = entry.detail.as_ref().map(|detail| format!("  {detail}")).unwrap_or_default();
    format!("{}  {}  {}  {}  {from}{detail}", entry.happened_at, entry.actor, entry.action, entry.target)
}
