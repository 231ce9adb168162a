//! Removes what would only grow: accounts that nobody has ever used, old entries of the audit trail, and old files of mails.
//!
//! Every replica goes over all of it once a day, in slices, and where two meet, the second finds nothing left; files are each
//! replica's own. An age is what lies between a thing and the newest entry of the trail: where nothing happens nothing grows, and
//! a clock that is ahead removes nothing before somebody acts by it.

use crate::app::App;
use accounts::cleanup::{Position, remove_unused};
use kernel::clock::{DAY_MS, Day, Time};
use kernel::error::Error;

/// The most rows or files that one turn looks at and removes.
const SLICE: i64 = 500;

/// Where the walk of this replica has come to.
#[derive(Debug, Default)]
pub struct Walk {
    /// The day on which the last one ended, or began, if it is under way.
    day: Option<Day>,
    stage: Stage,
    removed: Removed,
}

#[derive(Clone, Debug, Default)]
enum Stage {
    /// Accounts after this one.
    Accounts(Position),
    Trail,
    Files,
    /// Nothing is left for today.
    #[default]
    Done,
}

/// Counts of what a walk has removed so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Accounts.
    pub accounts: u64,
    /// Entries of the audit trail.
    pub entries: u64,
    /// Files of mails.
    pub files: u64,
}

/// The outcome of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Counts of what today's walk has removed so far.
    pub removed: Removed,
    /// Whether there is more to do today.
    pub goes_on: bool,
}

/// Looks at the next slice, if there is one today.
///
/// # Errors
/// The database's or the disk's; the same slice comes again then.
pub async fn turn(app: &App, walk: &mut Walk) -> Result<Turn, Error> {
    turn_of(app, walk, SLICE).await
}

/// The same with slices of another size.
///
/// # Errors
/// The database's or the disk's.
pub async fn turn_of(app: &App, walk: &mut Walk, size: i64) -> Result<Turn, Error> {
    let Ok(now) = app.clock_guard.now() else {
        return Ok(Turn { removed: walk.removed, goes_on: false });
    };
    let today = now.day();
    if matches!(walk.stage, Stage::Done) {
        if walk.day == Some(today) {
            return Ok(Turn { removed: walk.removed, goes_on: false });
        }
        *walk = Walk {
            day: Some(today),
            stage: Stage::Accounts(Position::default()),
            removed: Removed::default(),
        };
    }
    let retention = &app.config.retention;
    walk.stage = match &walk.stage {
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
                    Stage::Files
                } else {
                    Stage::Trail
                }
            }
            None => Stage::Files,
        },
        Stage::Files => {
            if let Some(before) = before(app, retention.mail_files_days).await? {
                walk.removed.files = app.mail.remove_files_before(before).await?;
            }
            Stage::Done
        }
        Stage::Done => Stage::Done,
    };
    let goes_on = !matches!(walk.stage, Stage::Done);
    if !goes_on && walk.removed != Removed::default() {
        let Removed { accounts, entries, files } = walk.removed;
        tracing::info!(
            accounts,
            entries,
            files,
            "accounts never used, old audit entries and old mail files were removed"
        );
    }
    Ok(Turn { removed: walk.removed, goes_on })
}

/// The instant so many days before the newest entry of the trail, or before now if that is earlier; none for 0 days or an empty
/// trail.
async fn before(app: &App, days: u32) -> Result<Option<Time>, Error> {
    if days == 0 {
        return Ok(None);
    }
    let newest = trail::newest(&mut app.db.read().await?).await?;
    Ok(newest.map(|newest| newest.min(app.clock.now()).plus_ms(-i64::from(days).saturating_mul(DAY_MS))))
}

/// How many entries went.
async fn remove_entries(app: &App, before: Time, most: i64) -> Result<u64, Error> {
    let oldest = trail::oldest(&mut app.db.read().await?).await?;
    if oldest.is_none_or(|oldest| oldest >= before) {
        return Ok(0);
    }
    let mut tx = app.db.write().await?;
    let removed = trail::remove_before(&mut tx, before, most).await?;
    tx.commit().await?;
    Ok(removed)
}
