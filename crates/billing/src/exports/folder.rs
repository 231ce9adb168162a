//! The files of `exports.folder`: one per day with the charges of all organizations, written by one replica.
//!
//! The folder itself records the progress: a month that can no longer change has a file `_SUCCESS`, and the
//! file `.written` contains the time of the last run.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cluster::leases::Lease;
use kernel::clock::{Day, HOUR_MS, Month, Time};
use kernel::error::Error;
use kernel::files;
use tokio::fs::{self, DirBuilder, File, OpenOptions};
use tokio::io::{AsyncWriteExt, BufWriter};

use super::{AllExports, Form, Source};
use crate::{Billing, store};

/// The name of the file of a day.
const FILE: &str = "focus.csv";
/// The name of the file that marks a month as complete.
const COMPLETE: &str = "_SUCCESS";
/// The name of the file with the time of the last run.
const WRITTEN: &str = ".written";
/// The suffix of the names of files that are being written.
const TEMPORARY: &str = ".tmp";

/// Writes the files if an interval has passed and no other replica writes them. Returns the number of files
/// that changed.
///
/// # Errors
/// The database or the file system fails. Complete files stay, and the others are written by the next call.
pub async fn run_due(billing: &Billing, lease: &Lease) -> Result<u64, Error> {
    let Some(folder) = &billing.exports.folder else { return Ok(0) };
    lease.run_with_lease(Box::pin(write_due(billing, folder))).await?.unwrap_or(Ok(0))
}

async fn write_due(billing: &Billing, folder: &Path) -> Result<u64, Error> {
    let now = billing.clock.now();
    if !is_due(folder, now, i64::from(billing.exports.every_hours) * HOUR_MS).await? {
        return Ok(0);
    }
    let changed = write_all(billing, folder, now).await?;
    write(billing, &folder.join(WRITTEN), &now.to_string()).await?;
    tracing::info!(changed, "the exports were written");
    Ok(changed)
}

/// Returns `true` if a new interval has begun since the last run. Daily intervals begin at midnight UTC.
async fn is_due(folder: &Path, now: Time, every_ms: i64) -> Result<bool, Error> {
    let interval = |time: Time| time.unix_ms().div_euclid(every_ms);
    match fs::read_to_string(folder.join(WRITTEN)).await {
        Ok(text) => Ok(Time::parse(text.trim()).is_none_or(|at| interval(at) != interval(now))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(failure(folder, &error)),
    }
}

/// Writes the files of every month that isn't complete. Returns the number of files that changed.
///
/// # Errors
/// The database or the file system fails.
pub async fn write_all(billing: &Billing, folder: &Path, now: Time) -> Result<u64, Error> {
    let oldest = store::wallets::overviews(&mut billing.db().read().await?, None, 1).await?;
    // An organization isn't billed for months before its creation.
    let Some(oldest) = oldest.first() else { return Ok(0) };
    let mut month = oldest.wallet.organization_id.created_at().day().month();
    let mut changed = 0;
    while month <= now.day().month() {
        let folder = folder_of(folder, month);
        if !fs::try_exists(folder.join(COMPLETE)).await.map_err(|error| failure(&folder, &error))? {
            changed += write_month(billing, &folder, month, now).await?;
        }
        month = month.plus(1);
    }
    Ok(changed)
}

async fn write_month(billing: &Billing, folder: &Path, month: Month, now: Time) -> Result<u64, Error> {
    // This is read first, because a month that is already complete no longer changes.
    let open = store::months::first_open(&mut billing.db().read().await?, month).await?;
    let mut files = DayFiles::new(billing, folder);
    let today = now.day();
    let mut day = month.first_day();
    while day <= today && day.month() == month {
        files.of(day).await?;
        day = day.plus(1);
    }
    let mut exports = AllExports::begin(billing, Source::Primary, month, form(billing));
    while let Some(mut export) = exports.next_export().await? {
        while let Some(charges) = export.next_charges().await? {
            let mut texts: BTreeMap<Day, String> = BTreeMap::new();
            for charge in &charges {
                export.add_line(charge, texts.entry(charge.file_day(month)).or_default());
            }
            for (day, text) in texts {
                files.add(day, &text).await?;
            }
        }
    }
    let changed = files.finish().await?;
    if open.is_none() {
        write(billing, &folder.join(COMPLETE), "").await?;
    }
    Ok(changed)
}

/// Returns the form of the files.
fn form(billing: &Billing) -> Form {
    Form::charges(billing.exports.focus_version)
}

/// Returns the folder of a month.
fn folder_of(folder: &Path, month: Month) -> PathBuf {
    let text = month.to_string();
    let (year, month) = text.split_once('-').unwrap_or((text.as_str(), ""));
    folder.join(format!("year={year}")).join(format!("month={month}"))
}

/// The files of the days of a month, under temporary names until they are complete.
struct DayFiles {
    folder: PathBuf,
    /// The line with the names of the columns.
    header: String,
    /// Distinguishes the temporary files of two writers.
    suffix: String,
    files: BTreeMap<Day, (PathBuf, BufWriter<File>)>,
}

impl DayFiles {
    fn new(billing: &Billing, folder: &Path) -> Self {
        let (header, suffix) = (form(billing).header(), suffix(billing));
        Self { folder: folder.to_owned(), header, suffix, files: BTreeMap::new() }
    }

    fn folder_of(&self, day: Day) -> PathBuf {
        let text = day.to_string();
        self.folder.join(format!("day={}", text.rsplit('-').next().unwrap_or_default()))
    }

    /// Returns the file of a day. A new file begins with the header.
    async fn of(&mut self, day: Day) -> Result<&mut BufWriter<File>, Error> {
        if !self.files.contains_key(&day) {
            let folder = self.folder_of(day);
            let path = folder.join(format!("{FILE}{}", self.suffix));
            let created = async {
                create_folder(&folder).await?;
                remove_temporary(&folder).await?;
                let mut file = BufWriter::new(create(&path).await?);
                file.write_all(self.header.as_bytes()).await?;
                Ok(file)
            };
            let file = created.await.map_err(|error| failure(&path, &error))?;
            self.files.insert(day, (path, file));
        }
        let file = self.files.get_mut(&day).map(|(_, file)| file);
        file.ok_or_else(|| Error::internal("the file of a day is missing"))
    }

    async fn add(&mut self, day: Day, text: &str) -> Result<(), Error> {
        let folder = self.folder_of(day);
        self.of(day).await?.write_all(text.as_bytes()).await.map_err(|error| failure(&folder, &error))
    }

    /// Renames the files to their final names. Returns the number of files that changed.
    async fn finish(self) -> Result<u64, Error> {
        let (mut changed, mut folders) = (0, Vec::new());
        for (day, (temporary, mut file)) in self.files {
            file.flush().await.map_err(|error| failure(&temporary, &error))?;
            folders.push((day, temporary));
        }
        for (_, temporary) in folders {
            let file = temporary.with_file_name(FILE);
            changed += u64::from(replace(temporary, file).await?);
        }
        Ok(changed)
    }
}

/// Removes the temporary files that a killed writer left in a folder.
async fn remove_temporary(folder: &Path) -> Result<(), std::io::Error> {
    let mut entries = fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(TEMPORARY)) {
            fs::remove_file(entry.path()).await?;
        }
    }
    Ok(())
}

/// Returns an unpredictable suffix for the name of a temporary file.
fn suffix(billing: &Billing) -> String {
    format!(".{:016x}{TEMPORARY}", u64::from_be_bytes(billing.random.bytes()))
}

/// Creates a folder and its parents, with access for this user only.
async fn create_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).await
}

/// Creates a file, with access for this user only. Fails if the name exists, so it never follows a link.
async fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).await
}

/// Writes a file completely or not at all.
async fn write(billing: &Billing, path: &Path, text: &str) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix(billing));
    let temporary = PathBuf::from(name);
    let written = async {
        if let Some(folder) = path.parent() {
            remove_temporary(folder).await?;
        }
        let mut file = create(&temporary).await?;
        file.write_all(text.as_bytes()).await?;
        file.flush().await
    };
    written.await.map_err(|error| failure(path, &error))?;
    replace(temporary, path.to_owned()).await?;
    Ok(())
}

/// Renames a complete file to its final name; see [`files::replace`].
async fn replace(temporary: PathBuf, file: PathBuf) -> Result<bool, Error> {
    let path = file.clone();
    let replaced = tokio::task::spawn_blocking(move || files::replace(&temporary, &file)).await;
    let replaced = replaced.map_err(|_| Error::internal("a file was not replaced"))?;
    replaced.map_err(|error| failure(&path, &error))
}

fn failure(path: &Path, error: &std::io::Error) -> Error {
    Error::internal(format!("{}: {error}", path.display()))
}
