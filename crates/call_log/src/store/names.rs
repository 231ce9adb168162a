//! Names and their numbers.

use std::sync::LazyLock;

use db::sized::{Sizes, values};
use db::{FromRow, Row, Tx, sql};

struct Numbered(i64, String);

impl FromRow for Numbered {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self(row.get("number")?, row.get("name")?))
    }
}

static FIND: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let parameters: Vec<_> = (1..=rows).map(|number| format!("${number}")).collect();
        format!("SELECT number, name FROM call_names WHERE name IN ({})", parameters.join(", "))
    })
});

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // An update locks a name that another replica is adding, and returns its number.
        format!(
            "INSERT INTO call_names (name) VALUES {} ON CONFLICT (name) DO UPDATE SET name = excluded.name
             RETURNING number, name",
            values(rows, 1)
        )
    })
});

/// Returns the numbers of these names, those that exist.
pub async fn find(tx: &mut Tx, names: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, db::Error> {
    run(tx, &FIND, names).await
}

/// Returns the numbers of these names, which are in order, and gives new names a number.
pub async fn find_or_add(tx: &mut Tx, names: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, db::Error> {
    let mut found = find(tx, names).await?;
    let is_found = |name: &str| found.iter().any(|(known, _)| **known == *name);
    let missing: Vec<_> = names.iter().filter(|name| !is_found(name)).cloned().collect();
    found.extend(run(tx, &ADD, &missing).await?);
    Ok(found)
}

async fn run(
    tx: &mut Tx,
    texts: &'static Sizes,
    names: &[Box<str>],
) -> Result<Vec<(Box<str>, i64)>, db::Error> {
    let mut found = Vec::with_capacity(names.len());
    for (text, chunk) in texts.chunks(names) {
        let statement = chunk.iter().fold(sql(text), |statement, name| statement.bind(&**name));
        let rows: Vec<Numbered> = statement.all(tx).await?;
        found.extend(rows.into_iter().map(|Numbered(number, name)| (name.into_boxed_str(), number)));
    }
    Ok(found)
}
