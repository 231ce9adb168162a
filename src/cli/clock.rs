//! `tollkeeper clock …`

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use crate::app::App;
use crate::config::Config;
use cluster::clock_trust::Distrust;
use kernel::clock::Time;
use kernel::error::Error;

use trail::{Action, Event, Trail};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show this machine's clock, the clocks it's compared with, and whether it's trusted; exits with 1 if it
    /// isn't trusted
    Show {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Accept this machine's clock as correct and an earlier one as wrong: servers trust it again within
    /// seconds, and months close after another two hours of uptime
    Accept {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = super::app(config).await?;
        match command {
            Command::Show { json } => show(&app, *json),
            Command::Accept { json } => accept(&app, *json).await,
        }
    })
}

/// The JSON output.
#[derive(Serialize)]
struct Report {
    now: Time,
    trusted: bool,
    reason: Option<String>,
    database: Option<Time>,
    last_seen_at: Option<Time>,
    up_since_at: Option<Time>,
    accepted_at: Option<Time>,
    /// The reason why months aren't closed.
    months_wait: Option<String>,
}

fn show(app: &App, as_json: bool) -> Result<(), String> {
    let (now, guard) = (app.clock.now(), &app.clock_guard);
    let (distrust, stored) = (guard.now().err(), guard.stored());
    let database_ms = guard.offsets().database_ms;
    let report = Report {
        now,
        trusted: distrust.is_none(),
        reason: distrust.map(|distrust| distrust.to_string()),
        database: database_ms.map(|ahead_ms| now.plus_ms(-ahead_ms)),
        last_seen_at: stored.map(|stored| stored.last_seen_at),
        up_since_at: stored.map(|stored| stored.up_since_at),
        accepted_at: stored.and_then(|stored| stored.accepted_at),
        months_wait: guard.check_up().err().map(|wait| wait.to_string()),
    };
    super::print(&if as_json {
        serde_json::to_string(&report).map_err(|error| error.to_string())?
    } else {
        text(&report)
    });
    match report.reason {
        Some(reason) => Err(format!("the clock isn't trusted: {reason}")),
        None => Ok(()),
    }
}

fn text(report: &Report) -> String {
    let or_none = |time: Option<Time>| time.map_or_else(|| "none".to_owned(), |time| time.to_string());
    [
        format!("This machine  {}", report.now),
        format!("Database      {}", or_none(report.database)),
        format!("Last seen     {}", or_none(report.last_seen_at)),
        format!("Up since      {}", or_none(report.up_since_at)),
        format!("Accepted      {}", or_none(report.accepted_at)),
        format!("Trusted       {}", if report.trusted { "yes" } else { "no" }),
        format!("Months        {}", report.months_wait.as_deref().unwrap_or("close when they are due")),
    ]
    .join("\n")
}

async fn accept(app: &App, as_json: bool) -> Result<(), String> {
    // This command can accept this machine's clock, but can't correct the database's clock.
    if let Err(distrust @ Distrust::Database { .. }) = app.clock_guard.now() {
        return Err(format!("nothing was changed: {distrust}"));
    }
    let before = app.clock_guard.stored();
    let accepted = async {
        let mut tx = app.db.write().await?;
        let now = app.clock_guard.time_in(&mut tx).await?;
        cluster::store::service_clock::accept(&mut tx, now).await?;
        let event =
            Event { action: Action::ClockAccepted, target: "clock".to_owned(), organization_id: None };
        let detail = json!({"last_seen_at": before.map(|before| before.last_seen_at.to_string()), "accepted_at": now.to_string()});
        let (trail, random) = (Trail::operator(), &app.random);
        trail::record_with(&mut tx, &trail, &event, &detail, now, random).await?;
        tx.commit().await?;
        Ok::<_, Error>(now)
    };
    let now = accepted.await.map_err(|error| error.to_string())?;
    let last_seen_at = before.map(|before| before.last_seen_at);
    super::print(&if as_json {
        json!({"accepted_at": now, "last_seen_before": last_seen_at}).to_string()
    } else {
        let before =
            last_seen_at.map(|seen| format!("; the newest earlier time was {seen}")).unwrap_or_default();
        format!(
            "{now} is accepted as correct{before}. Servers continue within seconds; months close in two \
             hours."
        )
    });
    Ok(())
}
