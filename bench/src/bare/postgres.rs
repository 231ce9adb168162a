//! tokio-postgres as used by the service: reads pipelined over four connections, transactions on one of
//! sixteen, prepared statements one after another, and the rows of a batch pipelined.

#![allow(clippy::disallowed_types, reason = "this file measures the bare driver")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, NoTls, Statement};

use super::store::{
    ADD_LOG, ADD_ROW, ADD_USER, ANN, BUSY, COUNT, Events, INDEXES, Ids, ListRow, NewRow, PAGE, Page, QUIET,
    ROWS, TABLES, USER, User,
};
use crate::bare_rows::{DAYS, EVENTS, INSERT, UPSERT};

const READERS: usize = 4;
const WRITERS: usize = 16;

/// A connection to a PostgreSQL server.
pub struct Postgres {
    readers: Vec<Reader>,
    next: AtomicUsize,
    writers: Mutex<Vec<Writer>>,
    free: Semaphore,
    ids: Ids,
}

struct Reader {
    client: Client,
    user: Statement,
    count: Statement,
    page: Statement,
}

struct Writer {
    client: Client,
    user: Statement,
    row: Statement,
    log: Statement,
    event: Statement,
    day: Statement,
}

impl Postgres {
    pub async fn open(url: &str) -> Result<Self, Error> {
        let client = connect(url).await?;
        for (name, columns) in TABLES.into_iter().chain([("bare_events", EVENTS), ("bare_days", DAYS)]) {
            let columns = columns.replace("BYTES", "BYTEA").replace("TEXT", "TEXT COLLATE \"C\"");
            client.batch_execute(&format!("CREATE TABLE IF NOT EXISTS {name} ({columns})")).await?;
        }
        for index in INDEXES {
            client.batch_execute(index).await?;
        }
        let ids = Ids::new();
        client.execute(ADD_USER, &[&ANN]).await?;
        client.execute("DELETE FROM bare_rows WHERE parent = $1", &[&QUIET]).await?;
        for _ in 0..ROWS {
            let id = ids.next();
            client.execute(ADD_ROW, &[&id, &QUIET, &id, &"One of a page"]).await?;
        }
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for _ in 0..READERS {
            readers.push(Reader::open(url).await?);
        }
        for _ in 0..WRITERS {
            writers.push(Writer::open(url).await?);
        }
        let free = Semaphore::new(WRITERS);
        Ok(Self { readers, next: AtomicUsize::new(0), writers: Mutex::new(writers), free, ids })
    }

    pub async fn user(&self) -> Result<User, Error> {
        let reader = self.reader();
        let row = reader.client.query_one(&reader.user, &[&ANN]).await?;
        Ok(User {
            id: row.try_get(0)?,
            email: row.try_get(1)?,
            username: row.try_get(2)?,
            full_name: row.try_get(3)?,
            created_at: row.try_get(4)?,
        })
    }

    pub async fn page(&self) -> Result<Page, Error> {
        let reader = self.reader();
        let (total, rows) = futures_util::future::try_join(
            reader.client.query_one(&reader.count, &[&QUIET]),
            reader.client.query(&reader.page, &[&QUIET]),
        )
        .await?;
        let row = |row: &tokio_postgres::Row| {
            Ok(ListRow {
                id: row.try_get(0)?,
                name: row.try_get(1)?,
                description: row.try_get(2)?,
                created_at: row.try_get(3)?,
                updated_at: row.try_get(4)?,
            })
        };
        Ok(Page { rows: rows.iter().map(row).collect::<Result<_, Error>>()?, total: total.try_get(0)? })
    }

    pub async fn write(&self, row: NewRow) -> Result<NewRow, Error> {
        let (id, entry) = (self.ids.next(), self.ids.next());
        self.with_writer(async |writer| {
            let client = &writer.client;
            client.batch_execute("BEGIN").await?;
            let owner: String = client.query_one(&writer.user, &[&ANN]).await?.try_get(0)?;
            client.execute(&writer.row, &[&id, &BUSY, &row.name, &row.description]).await?;
            client.execute(&writer.log, &[&entry, &owner, &id, &BUSY]).await?;
            client.batch_execute("COMMIT").await
        })
        .await?;
        Ok(row)
    }

    pub async fn record(&self, events: &Events) -> Result<(), Error> {
        let (hash, days) = (vec![7_u8; 32], events.days());
        let events: Vec<[&(dyn ToSql + Sync); 5]> = events
            .events
            .iter()
            .map(|event| -> [&(dyn ToSql + Sync); 5] { [&BUSY, &event.id, &hash, &BUSY, &event.api_key_id] })
            .collect();
        let sums: Vec<_> = days.iter().map(|(key, each)| (key, *each, each * 120, each * 240)).collect();
        let days: Vec<[&(dyn ToSql + Sync); 8]> = sums
            .iter()
            .map(|(key, each, prompt, completion)| -> [&(dyn ToSql + Sync); 8] {
                [&BUSY, &BUSY, *key, each, prompt, completion, each, each]
            })
            .collect();
        self.with_writer(async |writer| {
            let client = &writer.client;
            client.batch_execute("BEGIN").await?;
            try_join_all(events.iter().map(|row| client.execute(&writer.event, row))).await?;
            try_join_all(days.iter().map(|row| client.execute(&writer.day, row))).await?;
            client.batch_execute("COMMIT").await
        })
        .await
    }

    fn reader(&self) -> &Reader {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % READERS;
        #[allow(clippy::indexing_slicing, reason = "the number of writers equals the number of permits")]
        &self.readers[at]
    }

    async fn with_writer(&self, work: impl AsyncFnOnce(&Writer) -> Result<(), Error>) -> Result<(), Error> {
        let permit = self.free.acquire().await;
        let taken = self.writers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let done = match &taken {
            Some(writer) => work(writer).await,
            // Unreachable: the number of writers equals the number of permits.
            None => Ok(()),
        };
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).extend(taken);
        drop(permit);
        done
    }
}

impl Reader {
    async fn open(url: &str) -> Result<Self, Error> {
        let client = connect(url).await?;
        let (user, count, page) =
            (client.prepare(USER).await?, client.prepare(COUNT).await?, client.prepare(PAGE).await?);
        Ok(Self { client, user, count, page })
    }
}

impl Writer {
    async fn open(url: &str) -> Result<Self, Error> {
        let client = connect(url).await?;
        Ok(Self {
            user: client.prepare(USER).await?,
            row: client.prepare(ADD_ROW).await?,
            log: client.prepare(ADD_LOG).await?,
            event: client.prepare(INSERT).await?,
            day: client.prepare(UPSERT).await?,
            client,
        })
    }
}

async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
