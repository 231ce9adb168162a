//! SQLite in WAL mode: one writer, concurrent readers, every commit synced to disk.
//!
//! Short reads and the statements of a transaction run inline on the async threads: they take microseconds.
//! Slower work runs on blocking threads: opening, commits, which wait for the disk, heavy statements, and
//! waiting for the writer of another process, such as a command that runs next to the server.

mod backup;
mod connection;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Error;
use crate::connections::Connections;
use crate::statement::{Answer, Statement, Want};

pub use backup::Backup;
pub(super) use connection::{Access, Connection, create, map_error};

/// The maximum wait for the writer, for a reader, and for the writer of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent heavy reads. They never block short reads: the number of connections is this
/// number plus that of async threads.
const MAX_HEAVY_READS: usize = 4;

/// A database file.
pub(super) struct Sqlite {
    path: PathBuf,
    /// Incremented when the file was replaced. Readers of an older generation reopen it.
    generation: AtomicU64,
    writer: Arc<AsyncMutex<Option<Connection>>>,
    readers: Vec<Mutex<Option<Connection>>>,
    heavy_reads: Semaphore,
}

thread_local! {
    /// The index of the reader that this thread prefers, which helps CPU caches.
    static USUAL_READER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Sqlite {
    /// Returns the database without opening the file.
    pub(super) fn new(path: PathBuf) -> Self {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        Self {
            path,
            generation: AtomicU64::new(0),
            writer: Arc::default(),
            readers: (0..threads + MAX_HEAVY_READS).map(|_| Mutex::new(None)).collect(),
            heavy_reads: Semaphore::new(MAX_HEAVY_READS),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a write transaction, after waiting for earlier ones.
    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        let guard = timeout(BUSY_TIMEOUT, Arc::clone(&self.writer).lock_owned()).await;
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
            // Another process is writing: wait on a blocking thread.
            writer = blocking(writer, |writer| {
                let begun = writer.connection()?.begin(BUSY_TIMEOUT)?;
                if begun { Ok(()) } else { Err(busy("another process writes for too long")) }
            })
            .await?
            .0;
        }
        Ok(Transaction { writer: Some(writer) })
    }

    /// Opens a separate connection with a snapshot of the current data.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let path = self.path.clone();
        let opening = spawn_blocking(move || Connection::open_snapshot(&path));
        let reader = opening.await.map_err(|error| Error::from_join(&error))??;
        Ok(Snapshot { reader: Some(reader) })
    }

    /// Returns the connections, per purpose. A connection in use counts as open.
    pub(super) fn connections(&self) -> Vec<Connections> {
        let (writing, written) = match self.writer.try_lock() {
            Ok(writer) => (0, usize::from(writer.is_some())),
            Err(_) => (1, 1),
        };
        let reading = self.readers.iter().filter(|slot| slot.try_lock().is_err()).count();
        let idle = |slot: &&Mutex<Option<Connection>>| slot.try_lock().is_ok_and(|slot| slot.is_some());
        let open = reading + self.readers.iter().filter(idle).count();
        let long = MAX_HEAVY_READS.saturating_sub(self.heavy_reads.available_permits());
        let of = |purpose, open, in_use, max| Connections { purpose, open, in_use, max, waiting: 0 };
        vec![
            of("write", written, writing, 1),
            of("read", open, reading, self.readers.len()),
            of("long_read", long, long, MAX_HEAVY_READS),
        ]
    }

    /// Makes readers reopen the file if it was replaced, for instance by a restored backup.
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

    /// Runs a read statement on a locked connection.
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

    /// Returns a free reader without waiting.
    fn free_reader(&self) -> Option<MutexGuard<'_, Option<Connection>>> {
        let start = USUAL_READER.with(|usual| usual % self.readers.len().max(1));
        let (before, from_start) = self.readers.split_at_checked(start)?;
        from_start.iter().chain(before).find_map(|slot| match slot.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// Runs a read statement on this thread; `None` if all readers are in use.
    fn try_read(&self, statement: &Statement, want: Want) -> Option<Result<Answer, Error>> {
        let mut slot = self.free_reader()?;
        Some(self.read_on(&mut slot, statement, want))
    }
}

/// Runs a statement outside of any transaction. Statements that write are refused.
pub(super) async fn read(sqlite: &Arc<Sqlite>, statement: Statement, want: Want) -> Result<Answer, Error> {
    if statement.heavy {
        return heavy_read(sqlite, statement, want).await;
    }
    // SQLite calls never yield, so a loop of reads must do so explicitly.
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
    timeout(BUSY_TIMEOUT, attempts).await.unwrap_or_else(|_| Err(busy("all readers are in use")))
}

async fn heavy_read(sqlite: &Arc<Sqlite>, statement: Statement, want: Want) -> Result<Answer, Error> {
    let permit = timeout(BUSY_TIMEOUT, sqlite.heavy_reads.acquire()).await;
    let _permit =
        permit.map_err(|_| busy("too many long reads"))?.map_err(|_| busy("the database is closed"))?;
    let sqlite = Arc::clone(sqlite);
    let work = spawn_blocking(move || {
        let answer = sqlite.try_read(&statement, want);
        answer.unwrap_or_else(|| Err(busy("all readers are in use")))
    });
    work.await.map_err(|error| Error::from_join(&error))?
}

/// A read transaction: a view of the file at one point in time.
pub(super) struct Snapshot {
    /// `None` while a blocking thread uses it.
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

/// The locked writer connection of a transaction. Dropping it rolls back an open transaction.
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
    /// `None` while a blocking thread uses it, and forever if that thread's result was lost.
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
        // The blocking thread owns the writer, so that a commit completes even if its caller is canceled.
        blocking(writer, |writer| writer.connection()?.commit()).await?;
        Ok(())
    }
}

/// Runs `work` on a blocking thread, and returns the writer with the result. On an error the writer is
/// dropped, which rolls the transaction back.
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
