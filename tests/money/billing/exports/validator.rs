//! The validator of the FinOps Foundation, with the rules of FOCUS 1.2 that come with it.

use std::path::Path;

use serde_json::Value;

use super::*;
use support::process::run_to_end;
use support::python::{command, skip_without};
use support::world::Folder;
use support::{Database, on_each_database};

/// A rule that no file can satisfy: it wants each invoice id to be null, because the data don't show whether a
/// charge is on an invoice.
const OF_INVOICED: &str = "InvoiceId-C-004-C";
/// Its counterpart, which wants each to be there.
const OF_OTHERS: &str = "InvoiceId-C-005-C";

/// Returns the rules that a file breaks; `None` without the validator.
fn broken(file: &Path) -> Option<Vec<String>> {
    let what = "the validator of FOCUS";
    let Some(interpreter) = std::env::var_os("TOLLKEEPER_TEST_FOCUS") else {
        skip_without(
            "focus",
            what,
            "name a Python with `focus-validator` in TOLLKEEPER_TEST_FOCUS (docs/testing.md#focus-validator)",
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
        // An open month without credit notes: no line has an invoice.
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
        // A mistake is found.
        let wrong = file(books, "2026-01").await.replace(",USD,", ",Dollars,");
        std::fs::write(path("wrong"), wrong).unwrap();
        let broken = broken(&path("wrong")).unwrap();
        assert!(broken.iter().any(|rule| rule.starts_with("BillingCurrency")), "{broken:?}");
    });
}
