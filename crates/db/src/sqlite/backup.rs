//! A copy of the database beside whoever uses it.
//!
//! `VACUUM INTO` reads in one transaction: in WAL mode that keeps no writer waiting and sees one instant, however long it
//! takes. SQLite's backup interface in small steps does worse here: each write of another process makes it begin again, so
//! beside a busy server it never ends. The copy also leaves out what deleted rows left behind in free pages.
#![allow(clippy::disallowed_types, reason = "this is where the driver is named")]

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::OpenFlags;

use super::{Sqlite, map_error};
use crate::{Backup, Error};

impl Sqlite {
    /// Writes the copy under the name `partial`, checks it, and gives it its name, on a blocking thread.
    pub(crate) async fn back_up(&self, file: &Path, partial: &Path) -> Result<Backup, Error> {
        let (source, file, partial) = (self.path().to_owned(), file.to_owned(), partial.to_owned());
        let work = tokio::task::spawn_blocking(move || {
            // Empty, and readable by the owner only, before anything is in it.
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
            made.map_err(|e| Error::from_io(&format!("can't make {}", partial.display()), &e))?;
            let done = copy(&source, &partial).and_then(|backup| name(&partial, &file).map(|()| backup));
            if std::fs::remove_file(&partial).is_err() {
                // It has its new name already, or can't be removed now: the error to tell is another.
            }
            done
        });
        work.await.map_err(|error| Error::from_join(&error))?
    }
}

fn copy(source: &Path, partial: &Path) -> Result<Backup, Error> {
    // Opened so that nothing of the source can be changed; `query_only` would forbid writing the copy as well.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let text = partial.to_str().ok_or_else(|| {
        Error::Internal(format!("{}: the name of a backup must be valid UTF-8", partial.display()))
    })?;
    let copied = rusqlite::Connection::open_with_flags(source, flags).and_then(|driver| {
        driver.busy_timeout(super::PATIENCE)?;
        driver.execute("VACUUM INTO ?1", [text])
    });
    copied.map_err(|error| map_error(&error, source))?;
    check(partial)
}

/// Reads the whole copy: nothing is said to be good that wasn't looked at.
fn check(partial: &Path) -> Result<Backup, Error> {
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
        return Err(Error::Internal(
            "there is no tollkeeper schema in it: this isn't its database".to_owned(),
        ));
    }
    let size = std::fs::metadata(partial).map_err(|e| Error::from_io(&partial.display().to_string(), &e))?;
    Ok(Backup { schema, size_bytes: size.len() })
}

/// Makes the copy durable, which `VACUUM INTO` doesn't, and gives it its name unless that is taken.
fn name(partial: &Path, file: &Path) -> Result<(), Error> {
    let failed = |error: &std::io::Error| Error::from_io(&format!("can't write {}", file.display()), error);
    File::open(partial).and_then(|opened| opened.sync_all()).map_err(|error| failed(&error))?;
    match std::fs::hard_link(partial, file) {
        // Some file systems know no links.
        Err(error) if error.kind() != ErrorKind::AlreadyExists && file.symlink_metadata().is_err() => {
            std::fs::rename(partial, file)
        }
        other => other,
    }
    .map_err(|error| failed(&error))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))
}
