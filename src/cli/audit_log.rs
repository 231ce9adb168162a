//! `tollkeeper audit-log`

use clap::Args;

use crate::config::Config;
use kernel::clock::Time;
use kernel::error::Error;

use trail::{Action, AuditEntry, Filter};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Show only actions of this user or key; `operator` is the command line, `system` the service itself,
    /// and `anonymous` an unknown caller
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Show only this action, such as `session.started`
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Option<String>,
    /// Show only actions on this object
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Show only entries of this organization
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
    /// Show only entries from this date or timestamp on
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    since: Option<Time>,
    /// Show only entries before this date or timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    until: Option<Time>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    limit: i64,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

fn action(text: &str) -> Result<String, String> {
    if text.parse::<Action>().is_ok() {
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

/// Returns an entry's time, actor, action, target, address, and details as one line.
fn line(entry: &AuditEntry) -> String {
    let from = entry.address.as_deref().unwrap_or("-");
    let detail = entry.detail.as_ref().map(|detail| format!("  {detail}")).unwrap_or_default();
    format!("{}  {}  {}  {}  {from}{detail}", entry.happened_at, entry.actor, entry.action, entry.target)
}
