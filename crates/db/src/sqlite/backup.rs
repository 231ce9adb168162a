//! Backup of a database in use.
//!
//! `VACUUM INTO` reads in one transaction. In WAL mode, it blocks no writer and sees the data of a single
//! point in time, however long it takes. SQLite's backup API in small steps starts over with each write of
//! another process, so it never finishes on a busy server. The copy also has no free pages with remains of
//! deleted rows.
#![allow(clippy::disallowed_types, reason = "the driver of SQLite")]

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::OpenFlags;

use super::{Sqlite, map_error};
use crate::Error;
use kernel::files;

/// A verified copy of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    /// The schema version of the copy.
    pub schema: i64,
    pub size_bytes: u64,
}

impl Sqlite {
    /// Copies the database to `partial`, verifies the copy and publishes it as `file`, on a blocking thread.
    pub(crate) async fn back_up(&self, file: &Path, partial: &Path) -> Result<Backup, Error> {
        let (source, file, partial) = (self.path().to_owned(), file.to_owned(), partial.to_owned());
        let work = tokio::task::spawn_blocking(move || {
            // Created empty, so that only the owner can read it from the start.
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
            made.map_err(|e| Error::from_io(&format!("can't make {}", partial.display()), &e))?;
            let done = copy(&source, &partial).and_then(|backup| publish(&partial, &file).map(|()| backup));
            if std::fs::remove_file(&partial).is_err() {
                // `done` has the relevant error.
            }
            done
        });
        work.await.map_err(|error| Error::from_join(&error))?
    }
}

fn copy(source: &Path, partial: &Path) -> Result<Backup, Error> {
    // Read-only by its flags: `query_only` would also forbid writing the copy.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let text = partial.to_str().ok_or_else(|| {
        Error::Internal(format!("{}: the name of a backup must be valid UTF-8", partial.display()))
    })?;
    let copied = rusqlite::Connection::open_with_flags(source, flags).and_then(|driver| {
        driver.busy_timeout(super::BUSY_TIMEOUT)?;
        driver.execute("VACUUM INTO ?1", [text])
    });
    copied.map_err(|error| map_error(&error, source))?;
    verify(partial)
}

/// Checks the integrity of the whole copy.
fn verify(partial: &Path) -> Result<Backup, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = rusqlite::Connection::open_with_flags(partial, flags).and_then(|driver| {
        let found: String = driver.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        let history = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";
        let schema = match driver.query_row(history, [], |row| row.get::<_, i64>(0))? {
            0 => 0,
            _ => {
                let version = "SELECT COALESCE(MAX(version), 0) FROM refinery_schema_history";
                driver.query_row(version, [], |row| row.get(0))?
            }
        };
        Ok((found, schema))
    });
    let (found, schema): (String, i64) = checked.map_err(|error| map_error(&error, partial))?;
    if found != "ok" {
        return Err(Error::Internal(format!("the copy is damaged: {found}")));
    }
    if schema == 0 {
        return Err(Error::Internal("the file has no tollkeeper schema: this isn't its database".to_owned()));
    }
    let size = std::fs::metadata(partial).map_err(|e| Error::from_io(&partial.display().to_string(), &e))?;
    Ok(Backup { schema, size_bytes: size.len() })
}

/// Renames the copy to its final name, unless that is taken.
fn publish(partial: &Path, file: &Path) -> Result<(), Error> {
    match files::publish(partial, file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(std::io::Error::from(ErrorKind::AlreadyExists)),
        Err(error) => Err(error),
    }
    .map_err(|error| Error::from_io(&format!("can't write {}", file.display()), &error))
}
