//! The FinOps Foundation's validator, with its rules for FOCUS 1.2.

use std::path::Path;

use serde_json::Value;

use super::*;
use support::process::run_to_end;
use support::python::{command, skip_without};
use support::world::Folder;
use support::{Database, on_each_database};

/// A rule that a file with invoice ids can't satisfy: it requires each invoice id to be null, because the
/// validator can't see whether a charge is on an invoice.
const OF_INVOICED: &str = "InvoiceId-C-004-C";
/// The opposite rule, which requires each invoice id to be present.
const OF_OTHERS: &str = "InvoiceId-C-005-C";

/// Returns the rules that a file breaks, or `None` if the validator isn't installed.
fn broken(file: &Path) -> Option<Vec<String>> {
    let what = "the FOCUS validator";
    let Some(interpreter) = std::env::var_os("TOLLKEEPER_TEST_FOCUS") else {
        skip_without(
            "focus",
            what,
            "set TOLLKEEPER_TEST_FOCUS to a Python with `focus-validator` (docs/testing.md#focus-validator)",
        );
        return None;
    };
    let mut validate = command(Path::new(&interpreter));
    validate.arg("tests/focus/validate.py").arg(file);
    let ended = run_to_end(validate);
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
    let result: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert!(result["passed"].as_u64().unwrap() > 200, "{result}");
    Some(result["broken"].as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned()).collect())
}

#[on_each_database]
fn validator_accepts_every_month(database: Database) {
    let folder = Folder::new();
    with_books(database, START, async |books| {
        two_months(books).await;
        let path = |name: &str| folder.0.join(format!("{}-{name}.csv", books.world.backend));
        // In an open month without credit notes, no line has an invoice id.
        books.set_time("2026-02-27T10:00:00Z");
        let open: Vec<_> = file(books, "2026-02")
            .await
            .lines()
            .filter(|line| !line.contains("credit_note_"))
            .map(str::to_owned)
            .collect();
        std::fs::write(path("open"), open.join("\r\n") + "\r\n").unwrap();
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        for month in ["2026-01", "2026-02"] {
            std::fs::write(path(month), file(books, month).await).unwrap();
        }
        books.set_time("2026-03-05T00:00:00Z");
        books.void_invoice(2).await;
        std::fs::write(path("2026-03"), file(books, "2026-03").await).unwrap();
        for (name, due) in [("open", OF_OTHERS), ("2026-01", OF_INVOICED), ("2026-02", OF_INVOICED)] {
            let Some(broken) = broken(&path(name)) else { return };
            assert_eq!(broken, [due], "{name} on {}", books.world.backend);
        }
        // The validator finds a mistake.
        let wrong = file(books, "2026-01").await.replace(",USD,", ",Dollars,");
        std::fs::write(path("wrong"), wrong).unwrap();
        let broken = broken(&path("wrong")).unwrap();
        assert!(broken.iter().any(|rule| rule.starts_with("BillingCurrency")), "{broken:?}");
    });
}
