//! Runs the examples of `docs/money.md`, and recalculates their sums.

use tollkeeper::clock::Day;

use super::by_hand;
use support::transcript::Books;
use support::{Database, on_each_database};

const MODEL: &str = "svc-1";

/// A row of an example's table.
struct Row<'a> {
    day: &'a str,
    what: &'a str,
    balance: &'a str,
}

/// Returns the rows of an example's table, and the text below the table up to the next heading.
fn example<'a>(page: &'a str, title: &str) -> (Vec<Row<'a>>, &'a str) {
    let (_, example) = page.split_once(&format!("### Example: {title}\n")).unwrap();
    let example = example.split("\n## ").next().unwrap();
    let rows = example.lines().filter(|line| line.starts_with("| 2026-")).map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        Row { day: cells[0], what: cells[1], balance: cells[2] }
    });
    (rows.collect(), example)
}

/// Returns the number at the beginning of a text.
fn count(text: &str) -> i64 {
    text.split(' ').next().unwrap().replace(',', "").parse().unwrap()
}

async fn perform(books: &mut Books<'_>, row: &Row<'_>) {
    books.set_time(&format!("{}T00:00:00Z", row.day));
    let (what, day) = (row.what, Day::parse(row.day).unwrap());
    if what.ends_with(" are bought") {
        books.buy_credit(&count(what).to_string(), "payment 1").await;
    } else if what.ends_with(" prompt tokens are used") {
        books.use_today(MODEL, count(what), 0).await;
    } else if let Some((tokens, of)) = what.split_once(" prompt tokens of ") {
        let of = Day::parse(of.strip_suffix(" are reported late").unwrap()).unwrap();
        books.use_on_day(of, 0, MODEL, count(tokens), 0).await;
    } else if let Some((tokens, note)) = what.split_once(" of these tokens are corrected: credit note ") {
        books.correct_event(1, count(tokens), 0).await;
        let month = day.month().plus(-1);
        let mut tx = books.world.app.db.read().await.unwrap();
        let notes =
            tollkeeper::billing::store::credit_notes::between(&mut tx, books.organization_id(), month, month)
                .await
                .unwrap();
        let is: Vec<_> =
            notes.iter().map(|(note, _)| format!("{} over {}", note.number, note.amount)).collect();
        assert_eq!(is, [note]);
    } else if let Some((_, invoice)) = what.split_once(" is closed: invoice ") {
        books.run_scheduler().await;
        let last = books.invoices().await.pop().unwrap();
        assert_eq!(last.month, day.month().plus(-1), "{what}");
        assert_eq!(format!("{} over {}", last.number, last.amount), invoice);
    } else {
        assert!(what.ends_with(" is closed without an invoice"), "{what}");
        let before = books.invoices().await.len();
        books.run_scheduler().await;
        assert_eq!(books.invoices().await.len(), before, "{what}");
    }
    let mut tx = books.world.app.db.read().await.unwrap();
    let wallet =
        tollkeeper::billing::store::wallets::get(&mut tx, books.organization_id()).await.unwrap().unwrap();
    assert_eq!(wallet.posted.to_string(), row.balance.replace(',', ""), "{} {what}", row.day);
}

#[on_each_database]
fn examples_of_the_page_are_correct(database: Database) {
    let page = std::fs::read_to_string("docs/money.md").unwrap();
    for title in ["a discount", "late usage", "a correction after the close"] {
        let (rows, text) = example(&page, title);
        assert!(rows.len() >= 3, "{title}");
        let sums: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("- ")).collect();
        assert!(sums.len() >= 4, "{title}");
        by_hand::check(&sums.join("\n"), "");
        database.run(&[], async |world| {
            let mut books = Books::open(&world, &format!("{}T00:00:00Z", rows[0].day)).await;
            for row in &rows {
                perform(&mut books, row).await;
            }
        });
    }
}
