//! SQLite: one writer, readers beside it (WAL), every commit synced to disk.
//!
//! Point reads and the statements of a transaction run inline on the async threads: they take microseconds.
//! What can take longer runs on blocking threads: opening, commits (they wait for the disk), statements
//! marked heavy, and waiting for another process that writes, such as the command line beside the server.

mod backup;
mod connection;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Connections, Error};
use crate::statement::{Answer, Statement, Want};

pub(super) use connection::{Access, Connection, create, map_error};

/// How long to wait for the writer, for a reader, and for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Heavy reads at a time. They never keep a point read waiting: there are this many connections more than
/// async threads.
const HEAVY_READS: usize = 4;

/// One database file.
pub(super) struct Sqlite {
    path: PathBuf,
    /// Goes up when the file turns out to be another one than the readers have open.
    generation: AtomicU64,
    writer: Arc<AsyncMutex<Option<Connection>>>,
    readers: Vec<Mutex<Option<Connection>>>,
    heavy_reads: Semaphore,
}

thread_local! {
    /// The reader that this thread takes if it is free: what it read last is in this core's caches then.
    static USUAL_READER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Sqlite {
    /// Opens nothing yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        Self {
            path,
            generation: AtomicU64::new(0),
            writer: Arc::default(),
            readers: (0..threads + HEAVY_READS).map(|_| Mutex::new(None)).collect(),
            heavy_reads: Semaphore::new(HEAVY_READS),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a write transaction, once the ones before it have ended.
    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        let guard = timeout(PATIENCE, Arc::clone(&self.writer).lock_owned()).await;
        let mut writer = Writer(guard.map_err(|_| busy("other writes take too long"))?);
        if writer.0.as_ref().is_some_and(|connection| connection.was_replaced(&self.path)) {
            self.notice_replaced_file();
            *writer.0 = None;
        }
        if writer.0.is_none() {
            let path = self.path.clone();
            writer = blocking(writer, move |writer| {
                *writer.0 = Some(Connection::open(&path, Access::Write)?);
                Ok(())
            })
            .await?
            .0;
        }
        if !writer.connection()?.begin(Duration::ZERO)? {
            // Another process writes: wait for it where that blocks nobody.
            writer = blocking(writer, |writer| {
                let begun = writer.connection()?.begin(PATIENCE)?;
                if begun { Ok(()) } else { Err(busy("another process writes for too long")) }
            })
            .await?
            .0;
        }
        Ok(Transaction { writer: Some(writer) })
    }

    /// Opens a connection of its own that goes on reading what is there now.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let path = self.path.clone();
        let opening = spawn_blocking(move || Connection::open_snapshot(&path));
        let reader = opening.await.map_err(|error| Error::from_join(&error))??;
        Ok(Snapshot { reader: Some(reader) })
    }

    /// What is open. A connection that is in use right now counts as open.
    pub(super) fn connections(&self) -> Vec<Connections> {
        let (writing, written) = match self.writer.try_lock() {
            Ok(writer) => (0, usize::from(writer.is_some())),
            Err(_) => (1, 1),
        };
        let reading = self.readers.iter().filter(|slot| slot.try_lock().is_err()).count();
        let idle = |slot: &&Mutex<Option<Connection>>| slot.try_lock().is_ok_and(|slot| slot.is_some());
        let open = reading + self.readers.iter().filter(idle).count();
        let long = HEAVY_READS.saturating_sub(self.heavy_reads.available_permits());
        let of = |purpose, open, in_use, most| Connections { purpose, open, in_use, most, waiting: 0 };
        vec![
            of("write", written, writing, 1),
            of("read", open, reading, self.readers.len()),
            of("long_read", long, long, HEAVY_READS),
        ]
    }

    /// Lets readers whose file was renamed away or replaced, as by a restored backup, open the new one.
    pub(super) fn notice_replaced_file(&self) {
        let replaced = |slot: &Mutex<Option<Connection>>| match slot.try_lock() {
            Ok(slot) => slot.as_ref().is_some_and(|reader| {
                reader.generation == self.generation.load(Ordering::Relaxed)
                    && reader.was_replaced(&self.path)
            }),
            Err(_) => false,
        };
        if self.readers.iter().any(replaced) {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a read statement on a connection that nobody uses right now.
    fn read_on(
        &self,
        slot: &mut Option<Connection>,
        statement: &Statement,
        want: Want,
    ) -> Result<Answer, Error> {
        let generation = self.generation.load(Ordering::Relaxed);
        if slot.as_ref().is_some_and(|reader| reader.generation != generation) {
            *slot = None;
        }
        let reader = match slot {
            Some(reader) => reader,
            None => {
                let mut opened = Connection::open(&self.path, Access::Read)?;
                opened.generation = generation;
                slot.insert(opened)
            }
        };
        let answer = reader.run(statement, want);
        if reader.broken {
            *slot = None;
        }
        answer
    }

    /// A reader that is free, without waiting.
    fn free_reader(&self) -> Option<MutexGuard<'_, Option<Connection>>> {
        let start = USUAL_READER.with(|usual| usual % self.readers.len().max(1));
        let (before, from_start) = self.readers.split_at_checked(start)?;
        from_start.iter().chain(before).find_map(|slot| match slot.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// Tries to read right here; `None` when all readers are in use.
    fn try_read(&self, statement: &Statement, want: Want) -> Option<Result<Answer, Error>> {
        let mut slot = self.free_reader()?;
        Some(self.read_on(&mut slot, statement, want))
    }
}

/// Runs a statement outside of any transaction; one that would write is refused.
pub(super) async fn read(sqlite: &Arc<Sqlite>, statement: Statement, want: Want) -> Result<Answer, Error> {
    if statement.heavy {
        return heavy_read(sqlite, statement, want).await;
    }
    // SQLite never waits, so a loop of reads has to give way of its own accord.
    tokio::task::coop::consume_budget().await;
    if let Some(answer) = sqlite.try_read(&statement, want) {
        return answer;
    }
    let attempts = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Some(answer) = sqlite.try_read(&statement, want) {
                return answer;
            }
        }
    };
    timeout(PATIENCE, attempts).await.unwrap_or_else(|_| Err(busy("all readers are in use")))
}

async fn heavy_read(sqlite: &Arc<Sqlite>, statement: Statement, want: Want) -> Result<Answer, Error> {
    let permit = timeout(PATIENCE, sqlite.heavy_reads.acquire()).await;
    let _permit =
        permit.map_err(|_| busy("too many long reads"))?.map_err(|_| busy("the database is closed"))?;
    let sqlite = Arc::clone(sqlite);
    let work = spawn_blocking(move || {
        let answer = sqlite.try_read(&statement, want);
        answer.unwrap_or_else(|| Err(busy("all readers are in use")))
    });
    work.await.map_err(|error| Error::from_join(&error))?
}

/// A view of the file as it was at one moment.
pub(super) struct Snapshot {
    /// Away only while a blocking thread has it.
    reader: Option<Connection>,
}

impl Snapshot {
    pub(super) async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        let mut reader = self.reader.take().ok_or_else(lost)?;
        let work = spawn_blocking(move || {
            let answer = reader.run(&statement, want);
            (reader, answer)
        });
        let (reader, answer) = work.await.map_err(|error| Error::from_join(&error))?;
        self.reader = Some(reader);
        answer
    }
}

/// The writer connection, held by one transaction. Whoever drops it, on whatever thread, leaves no
/// transaction open on it.
struct Writer(OwnedMutexGuard<Option<Connection>>);

impl Writer {
    fn connection(&mut self) -> Result<&mut Connection, Error> {
        self.0.as_mut().ok_or_else(|| busy("the connection was closed"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let usable = self.0.as_mut().is_none_or(|connection| connection.rollback() && !connection.broken);
        if !usable {
            *self.0 = None;
        }
    }
}

/// A write transaction.
pub(super) struct Transaction {
    /// Away only while a blocking thread has it; it doesn't come back when that thread's result is lost.
    writer: Option<Writer>,
}

impl Transaction {
    pub(super) async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        if !statement.heavy {
            tokio::task::coop::consume_budget().await;
            let writer = self.writer.as_mut().ok_or_else(lost)?;
            return writer.connection()?.run(&statement, want);
        }
        let writer = self.writer.take().ok_or_else(lost)?;
        let work = move |writer: &mut Writer| writer.connection()?.run(&statement, want);
        let (writer, answer) = blocking(writer, work).await?;
        self.writer = Some(writer);
        Ok(answer)
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        let writer = self.writer.take().ok_or_else(lost)?;
        // The thread owns the writer, so a cancelled caller leaves the commit to end by itself.
        blocking(writer, |writer| writer.connection()?.commit()).await?;
        Ok(())
    }
}

/// Does something with the writer on a blocking thread and gives both back. On an error the writer is dropped
/// there, which rolls its transaction back.
async fn blocking<T: Send + 'static>(
    mut writer: Writer,
    work: impl FnOnce(&mut Writer) -> Result<T, Error> + Send + 'static,
) -> Result<(Writer, T), Error> {
    let task = spawn_blocking(move || work(&mut writer).map(|done| (writer, done)));
    task.await.map_err(|error| Error::from_join(&error))?
}

fn busy(what: &str) -> Error {
    Error::Unavailable(what.to_owned())
}

fn lost() -> Error {
    Error::Internal("the transaction was lost with an earlier statement".to_owned())
}
