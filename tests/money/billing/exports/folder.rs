//! The files in `exports.folder`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollkeeper::billing::exports::folder::{run_due, write_all};
use tollkeeper::metrics::Job;

use super::*;
use support::world::Folder;
use support::{Database, on_each_database};

/// Runs a test on each database, with an empty folder for exports.
fn run_with_folder(database: Database, test: impl AsyncFn(&mut Books, &Path)) {
    let folder = Folder::new();
    let exports = folder.0.join("exports");
    let settings = [support::transcript::CATALOG, ("TOLLKEEPER_EXPORTS__FOLDER", exports.to_str().unwrap())];
    support::transcript::with_configured_books(database, &settings, START, async |books| {
        std::fs::create_dir(&exports).unwrap();
        test(books, &exports).await;
        std::fs::remove_dir_all(&exports).unwrap();
    });
}

/// Runs the job at this time. Returns the number of files that changed.
async fn run_at(books: &mut Books<'_>, time: &str) -> u64 {
    books.set_time(time);
    let app = &books.world.app;
    let changed = run_due(&app.billing, &app.leases.lease(Job::Exports)).await;
    // Ends the lease, so that the next run doesn't have to wait until it expires.
    let mut tx = app.db.write().await.unwrap();
    tollkeeper::db::sql("DELETE FROM job_leases WHERE job = 'exports'").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    changed.unwrap()
}

fn path(folder: &Path, day: &str) -> PathBuf {
    let [year, month, day]: [&str; 3] = day.split('-').collect::<Vec<_>>().try_into().unwrap();
    folder.join(format!("year={year}/month={month}/day={day}/focus.csv"))
}

fn read(folder: &Path, day: &str) -> String {
    std::fs::read_to_string(path(folder, day)).unwrap()
}

/// Returns the paths of all files below a folder, in order.
fn all_files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(all_files(&path)),
            false => found.push(path.to_str().unwrap().to_owned()),
        }
    }
    found.sort();
    found
}

/// Returns the sorted lines of all files of a month, without the header lines.
fn lines_of_month(folder: &Path, month: &str) -> Vec<String> {
    let [year, month]: [&str; 2] = month.split('-').collect::<Vec<_>>().try_into().unwrap();
    let files = all_files(&folder.join(format!("year={year}/month={month}")));
    let files = files.iter().filter(|name| name.ends_with("/focus.csv"));
    let mut lines: Vec<String> = Vec::new();
    for file in files {
        lines.extend(std::fs::read_to_string(file).unwrap().lines().skip(1).map(str::to_owned));
    }
    lines.sort();
    lines
}

async fn lines_of_answer(books: &Books<'_>, month: &str) -> Vec<String> {
    let mut lines: Vec<_> = file(books, month).await.lines().skip(1).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[on_each_database]
fn folder_has_a_file_for_each_day(database: Database) {
    run_with_folder(database, async |books, folder| {
        books.set_time("2026-01-05T10:00:00Z");
        books.use_today("chat-a", 1_000, 10).await;
        assert_eq!(run_at(books, "2026-01-06T00:10:00Z").await, 6);
        assert_eq!(read(folder, "2026-01-05").lines().count(), 3);
        assert_eq!(read(folder, "2026-01-04"), tollkeeper::billing::exports::Form::default().header());
        assert_eq!(run_at(books, "2026-01-06T23:59:59Z").await, 0, "once a day");
        assert_eq!(run_at(books, "2026-01-07T00:00:00Z").await, 1, "the new day's; the others are the same");
        // Usage that is reported late changes the file of its own day.
        books.set_time("2026-01-08T10:00:00Z");
        books.use_on_day(day("2026-01-04"), 1, "chat-a", 7, 0).await;
        assert_eq!(run_at(books, "2026-01-09T00:00:00Z").await, 3);
        assert_eq!(read(folder, "2026-01-04").lines().count(), 2);
        assert_eq!(lines_of_month(folder, "2026-01"), lines_of_answer(books, "2026-01").await);
        // The close adds the invoice to every line.
        books.set_time(CLOSES);
        books.run_scheduler().await;
        std::fs::write(folder.join("year=2026/month=01/day=03/focus.csv.dead.tmp"), "half a li").unwrap();
        // Two days of January with lines, the other 22 days whose files exist, and two of February.
        assert_eq!(run_at(books, "2026-02-02T00:01:00Z").await, 2 + 22 + 2);
        assert_eq!(lines_of_month(folder, "2026-01"), lines_of_answer(books, "2026-01").await);
        assert!(read(folder, "2026-01-05").contains("invoice_"));
        let others = all_files(folder).into_iter().filter(|name| !name.ends_with("/focus.csv"));
        let others: Vec<_> =
            others.map(|name| name.strip_prefix(folder.to_str().unwrap()).unwrap().to_owned()).collect();
        assert_eq!(others, ["/.written", "/year=2026/month=01/_SUCCESS"]);
        // Usage that is reported after the close is in February's first file.
        books.correct_event(1, 500, 0).await;
        books.use_on_day(day("2026-01-31"), 0, "chat-a", 4_000, 0).await;
        let january = lines_of_month(folder, "2026-01");
        assert_eq!(run_at(books, "2026-02-03T00:00:00Z").await, 2);
        assert_eq!(lines_of_month(folder, "2026-01"), january);
        assert_eq!(lines_of_month(folder, "2026-02"), lines_of_answer(books, "2026-02").await);
        assert!(read(folder, "2026-02-01").contains("credit_note_"));
        // The job doesn't read a complete month again.
        std::fs::write(path(folder, "2026-01-04"), "kept").unwrap();
        assert_eq!(run_at(books, "2026-02-04T00:00:00Z").await, 1);
        assert_eq!(read(folder, "2026-01-04"), "kept");
        // Without the `_SUCCESS` file, the job writes the month again.
        std::fs::remove_file(folder.join("year=2026/month=01/_SUCCESS")).unwrap();
        assert_eq!(run_at(books, "2026-02-05T00:00:00Z").await, 2);
        assert_eq!(lines_of_month(folder, "2026-01"), january);
    });
}

/// Only the user that runs the server can read the files. A symbolic link that another user has created at a
/// file's path is replaced, not followed.
#[on_each_database]
fn files_are_for_their_user_alone(database: Database) {
    run_with_folder(database, async |books, folder| {
        let outside = folder.with_file_name("outside");
        std::fs::write(&outside, "kept").unwrap();
        for name in [".written", ".written.tmp"] {
            std::os::unix::fs::symlink(&outside, folder.join(name)).unwrap();
        }
        books.set_time("2026-01-05T10:00:00Z");
        books.use_today("chat-a", 1_000, 10).await;
        assert_eq!(run_at(books, "2026-01-06T00:10:00Z").await, 6);
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");
        let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        for name in all_files(folder) {
            let path = Path::new(&name);
            assert!(!path.is_symlink(), "{name}");
            assert_eq!(mode(path), 0o600, "{name}");
        }
        let day = path(folder, "2026-01-05");
        for folder in day.ancestors().skip(1).take_while(|above| *above != folder) {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
    });
}

#[on_each_database]
fn one_replica_writes(database: Database) {
    run_with_folder(database, async |books, folder| {
        let leases = &books.world.app.leases;
        let (one, two) = (leases.lease(Job::Exports), leases.lease(Job::Exports));
        assert!(one.take().await.unwrap());
        assert_eq!(run_due(&books.world.app.billing, &two).await.unwrap(), 0);
        assert_eq!(all_files(folder), [""; 0]);
        assert_eq!(run_due(&books.world.app.billing, &one).await.unwrap(), 1);
    });
}

#[on_each_database]
fn failure_leaves_complete_files_and_is_tried_again(database: Database) {
    run_with_folder(database, async |books, folder| {
        books.use_today("chat-a", 1_000, 10).await;
        run_at(books, "2026-01-02T00:00:00Z").await;
        let before = read(folder, "2026-01-01");
        books.use_today("chat-a", 5, 0).await;
        // A folder has the path of a file.
        std::fs::create_dir_all(path(folder, "2026-01-03").join("x")).unwrap();
        books.set_time("2026-01-03T00:00:00Z");
        let app = &books.world.app;
        let lease = app.leases.lease(Job::Exports);
        let failed = run_due(&app.billing, &lease).await.unwrap_err().to_string();
        assert!(failed.contains("focus.csv"), "{failed}");
        assert_eq!(read(folder, "2026-01-01"), before);
        std::fs::remove_dir_all(path(folder, "2026-01-03")).unwrap();
        run_due(&app.billing, &lease).await.unwrap();
        assert_eq!(lines_of_month(folder, "2026-01"), lines_of_answer(books, "2026-01").await);
    });
}

#[on_each_database]
fn turn_that_breaks_off_leaves_no_half_file(database: Database) {
    run_with_folder(database, async |books, folder| {
        for token in 1..=40 {
            books.use_today("chat-a", token, 0).await;
        }
        let (app, now) = (&books.world.app, books.world.clock.now());
        let complete = file(books, "2026-01").await;
        for wait in 0..40 {
            let turn = write_all(&app.billing, folder, now);
            let ended = tokio::time::timeout(Duration::from_micros(wait * 400), turn).await;
            let files = all_files(folder).into_iter().filter(|name| name.ends_with("/focus.csv"));
            for name in files {
                assert_eq!(std::fs::read_to_string(&name).unwrap(), complete, "{name} after {wait}");
            }
            if ended.is_ok() {
                std::fs::remove_dir_all(folder).unwrap();
                std::fs::create_dir(folder).unwrap();
            }
        }
        write_all(&app.billing, folder, now).await.unwrap();
        let names = all_files(folder);
        assert_eq!(names.len(), 1, "the leftover files were removed: {names:?}");
    });
}
