//! rusqlite, configured like in the service and called on the async threads: a commit waits for the disk on
//! its thread.

#![allow(clippy::disallowed_types, reason = "this file measures the bare driver")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, params};

use super::store::{
    ADD_LOG, ADD_ROW, ADD_USER, ANN, BUSY, COUNT, Events, INDEXES, Ids, ListRow, NewRow, PAGE, Page, QUIET,
    ROWS, TABLES, USER, User,
};
use crate::bare_rows::{DAYS, EVENTS, INSERT, UPSERT};

/// The number of readers: one per worker.
const READERS: usize = 2;
/// The number of initial rows, which take a few thousand pages.
const FILL: u32 = 50_000;

/// A database file.
pub struct Sqlite {
    readers: Vec<Mutex<Connection>>,
    writer: Mutex<Connection>,
    ids: Ids,
}

impl Sqlite {
    pub fn open(path: &str) -> rusqlite::Result<Self> {
        let writer = connect(path.as_ref())?;
        for (name, columns) in TABLES.into_iter().chain([("bare_events", EVENTS), ("bare_days", DAYS)]) {
            let columns = columns.replace("BYTES", "BLOB").replace("BIGINT", "INTEGER");
            let rowid = if columns.contains("PRIMARY KEY (") { ", WITHOUT ROWID" } else { "" };
            writer.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) STRICT{rowid}"))?;
        }
        for index in INDEXES {
            writer.execute_batch(index)?;
        }
        let ids = Ids::new();
        writer.execute(&numbered(ADD_USER), [ANN])?;
        for _ in 0..ROWS {
            let id = ids.next();
            writer.execute(&numbered(ADD_ROW), params![id, QUIET, id, "One of a page"])?;
        }
        // Let the journal grow to its final size, as in a service that has run for a while. While it grows,
        // each commit also waits for the file system's own journal.
        writer.execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {FILL})
             INSERT INTO bare_rows SELECT 'fill_' || i, 'org_fill', 'Row ' || i, 'What it is for', i, i FROM n"
        ))?;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(Mutex::new(connect(path.as_ref())?));
        }
        Ok(Self { readers, writer: Mutex::new(writer), ids })
    }

    pub fn user(&self) -> rusqlite::Result<User> {
        let reader = self.reader()?;
        reader.prepare_cached(&numbered(USER))?.query_row([ANN], |row| {
            Ok(User {
                id: row.get(0)?,
                email: row.get(1)?,
                username: row.get(2)?,
                full_name: row.get(3)?,
                created_at: row.get(4)?,
            })
        })
    }

    pub fn page(&self) -> rusqlite::Result<Page> {
        let reader = self.reader()?;
        let total = reader.prepare_cached(&numbered(COUNT))?.query_row([QUIET], |row| row.get(0))?;
        let mut page = reader.prepare_cached(&numbered(PAGE))?;
        let rows = page.query_map([QUIET], |row| {
            Ok(ListRow {
                id: row.get(0)?,
                name: row.get(1)?,
                description: row.get(2)?,
                created_at: row.get(3)?,
                updated_at: row.get(4)?,
            })
        })?;
        Ok(Page { rows: rows.collect::<Result<_, _>>()?, total })
    }

    pub fn write(&self, row: NewRow) -> rusqlite::Result<NewRow> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let (id, entry) = (self.ids.next(), self.ids.next());
        let owner: String =
            transaction.prepare_cached(&numbered(USER))?.query_row([ANN], |found| found.get(0))?;
        transaction.prepare_cached(&numbered(ADD_ROW))?.execute(params![
            id,
            BUSY,
            row.name,
            row.description
        ])?;
        transaction.prepare_cached(&numbered(ADD_LOG))?.execute(params![entry, owner, id, BUSY])?;
        transaction.commit()?;
        Ok(row)
    }

    pub fn record(&self, events: &Events) -> rusqlite::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached(&numbered(INSERT))?;
        for event in &events.events {
            insert.execute(params![BUSY, event.id, [7_u8; 32], BUSY, event.api_key_id])?;
        }
        drop(insert);
        let mut upsert = transaction.prepare_cached(&numbered(UPSERT))?;
        for (key, each) in events.days() {
            upsert.execute(params![BUSY, BUSY, key, each, each * 120, each * 240, each, each])?;
        }
        drop(upsert);
        transaction.commit()
    }

    /// Returns a free reader, or the first one if none is free.
    fn reader(&self) -> rusqlite::Result<MutexGuard<'_, Connection>> {
        let free = self.readers.iter().find_map(|reader| reader.try_lock().ok());
        let first =
            || self.readers.first().map(|reader| reader.lock().unwrap_or_else(PoisonError::into_inner));
        free.or_else(first).ok_or(rusqlite::Error::InvalidQuery)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

fn numbered(text: &str) -> String {
    text.replace('$', "?")
}
