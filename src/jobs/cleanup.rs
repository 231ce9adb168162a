//! Removes old data: accounts that were never used, old audit entries, old webhook deliveries, old e-mail
//! files, and old rows of the call log.
//!
//! Each replica checks all of this data daily, in slices. Rows that another replica has already removed are
//! no longer found. Each replica has its own mail files. Ages are measured from the newest audit entry, so
//! nothing is removed on an idle installation. A fast clock removes nothing until an action is recorded with
//! its time. The call log isn't needed for anything else, so its ages are measured from the clock.

use crate::app::App;
use accounts::cleanup::{Position, remove_unused};
use kernel::clock::{DAY_MS, Day, Time};
use kernel::error::Error;

/// Maximum number of rows or files checked and removed at a time.
const SLICE: i64 = 500;
/// The number of rows of the call log that count as one row, because they are removed faster.
const CALLS_PER_ROW: i64 = 2;

/// The progress of this replica's daily check.
#[derive(Debug, Default)]
pub struct Progress {
    /// The day of the current or last check.
    day: Option<Day>,
    stage: Stage,
    removed: Removed,
}

#[derive(Clone, Debug, Default)]
enum Stage {
    /// Accounts after this position.
    Accounts(Position),
    Trail,
    Deliveries,
    Files,
    /// Calls of organizations after this position.
    Calls(call_log::retention::Position),
    /// Done for today.
    #[default]
    Done,
}

/// Numbers of rows and files removed so far by a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    pub accounts: u64,
    /// Audit entries.
    pub entries: u64,
    /// Deliveries of webhooks.
    pub deliveries: u64,
    /// Mail files.
    pub files: u64,
    /// Rows of the call log.
    pub calls: u64,
}

impl Removed {
    /// Logs the numbers, unless all are 0.
    fn log(self) {
        if self == Self::default() {
            return;
        }
        let Self { accounts, entries, deliveries, files, calls } = self;
        tracing::info!(
            accounts,
            entries,
            deliveries,
            files,
            calls,
            "unused accounts, old audit entries, old deliveries, old mail files and old calls were removed"
        );
    }
}

/// The result of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The totals of today's check so far.
    pub removed: Removed,
    /// Whether more work remains today.
    pub has_more: bool,
}

/// Handles the next slice of today's check.
///
/// # Errors
/// Errors of the database or the disk. The same slice is retried next time.
pub async fn step(app: &App, walk: &mut Progress) -> Result<Step, Error> {
    step_with_size(app, walk, SLICE).await
}

/// Handles the next slice, with the given size.
///
/// # Errors
/// Errors of the database or the disk.
pub async fn step_with_size(app: &App, walk: &mut Progress, size: i64) -> Result<Step, Error> {
    let Ok(now) = app.clock_guard.now() else {
        return Ok(Step { removed: walk.removed, has_more: false });
    };
    let today = now.day();
    if matches!(walk.stage, Stage::Done) {
        if walk.day == Some(today) {
            return Ok(Step { removed: walk.removed, has_more: false });
        }
        *walk = Progress {
            day: Some(today),
            stage: Stage::Accounts(Position::default()),
            removed: Removed::default(),
        };
    }
    walk.stage = remove_slice(app, walk, size).await?;
    let has_more = !matches!(walk.stage, Stage::Done);
    if !has_more {
        walk.removed.log();
    }
    Ok(Step { removed: walk.removed, has_more })
}

/// Removes a slice of a stage. Returns the stage of the next slice.
async fn remove_slice(app: &App, walk: &mut Progress, size: i64) -> Result<Stage, Error> {
    let retention = &app.config.retention;
    Ok(match &walk.stage {
        Stage::Accounts(after) => match before(app, retention.unverified_accounts_days).await? {
            Some(before) => {
                let (removed, end) = remove_unused(&app.accounts, before, after, size).await?;
                walk.removed.accounts = walk.removed.accounts.saturating_add(removed);
                end.map_or(Stage::Trail, Stage::Accounts)
            }
            None => Stage::Trail,
        },
        Stage::Trail => match before(app, retention.audit_log_days).await? {
            Some(before) => {
                let removed = remove_entries(app, before, size).await?;
                walk.removed.entries = walk.removed.entries.saturating_add(removed);
                if i64::try_from(removed).is_ok_and(|removed| removed < size) {
                    Stage::Deliveries
                } else {
                    Stage::Trail
                }
            }
            None => Stage::Deliveries,
        },
        Stage::Deliveries => match before(app, retention.webhook_deliveries_days).await? {
            Some(before) => {
                let (removed, has_more) =
                    webhooks::retention::remove_before(&app.webhooks, before, size).await?;
                walk.removed.deliveries = walk.removed.deliveries.saturating_add(removed);
                if has_more { Stage::Deliveries } else { Stage::Files }
            }
            None => Stage::Files,
        },
        Stage::Files => {
            if let Some(before) = before(app, retention.mail_files_days).await? {
                walk.removed.files = app.mail.remove_files_before(before).await?;
            }
            Stage::Calls(0)
        }
        Stage::Calls(after) => {
            let slice = app.billing.call_log.remove_old(*after, size.saturating_mul(CALLS_PER_ROW)).await?;
            walk.removed.calls = walk.removed.calls.saturating_add(slice.removed);
            slice.next.map_or(Stage::Done, Stage::Calls)
        }
        Stage::Done => Stage::Done,
    })
}

/// Returns the time `days` before the newest audit entry, or before now if that is earlier. `None` for 0 days
/// or an empty trail.
async fn before(app: &App, days: u32) -> Result<Option<Time>, Error> {
    if days == 0 {
        return Ok(None);
    }
    let newest = trail::newest(&mut app.db.read().await?).await?;
    Ok(newest.map(|newest| newest.min(app.clock.now()).plus_ms(-i64::from(days).saturating_mul(DAY_MS))))
}

/// Removes audit entries. Returns their number.
async fn remove_entries(app: &App, before: Time, max_rows: i64) -> Result<u64, Error> {
    let oldest = trail::oldest(&mut app.db.read().await?).await?;
    if oldest.is_none_or(|oldest| oldest >= before) {
        return Ok(0);
    }
    let mut tx = app.db.write().await?;
    let removed = trail::remove_before(&mut tx, before, max_rows).await?;
    tx.commit().await?;
    Ok(removed)
}
