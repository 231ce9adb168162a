//! Conversion of statements and values for the driver.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Write as _;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Statement as Prepared;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::statement::{Answer, Statement, Want};
use crate::value::Columns;
use crate::{Row, Value};

/// Maximum number of prepared statements. A connection that reaches this number drops all of them. Only
/// statements with dynamic text could reach it, such as inserts of many rows.
const MAX_PREPARED: usize = 256;

type BoxError = Box<dyn StdError + Sync + Send>;

/// Prepares the statement, unless it is cached, and runs it.
pub(super) async fn run(
    client: &ClientWrapper,
    statement: &Statement,
    want: Want,
) -> Result<Answer, tokio_postgres::Error> {
    let prepared = prepare(client, statement).await?;
    run_prepared(client, &prepared, statement, want).await
}

/// Prepares the statement, unless it is cached.
pub(super) async fn prepare(
    client: &ClientWrapper,
    statement: &Statement,
) -> Result<Prepared, tokio_postgres::Error> {
    if matches!(statement.text, Cow::Owned(_)) && client.statement_cache.size() > MAX_PREPARED {
        client.statement_cache.clear();
    }
    client.prepare_cached(&statement.text).await
}

/// Runs a prepared statement.
pub(super) async fn run_prepared(
    client: &ClientWrapper,
    prepared: &Prepared,
    statement: &Statement,
    want: Want,
) -> Result<Answer, tokio_postgres::Error> {
    let parameters: Vec<&(dyn ToSql + Sync)> =
        statement.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let answer = if want == Want::Count {
        let changed = client.execute(prepared, &parameters).await;
        changed.map(|changed| Answer { changed, rows: Vec::new() })
    } else {
        let rows = client.query(prepared, &parameters).await;
        rows.and_then(|rows| read_rows(&Columns::Prepared(prepared.clone()), &rows, want))
    };
    answer.inspect_err(|error| forget_stale(client, &statement.text, error))
}

/// Runs a statement without preparing it, in one message. Its parameters are sent in text format, and the
/// server infers their types as for a prepared statement.
pub(super) async fn run_unprepared(
    client: &ClientWrapper,
    statement: &Statement,
    want: Want,
) -> Result<Answer, tokio_postgres::Error> {
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        statement.values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect();
    if want == Want::Count {
        let changed = client.execute_typed(&statement.text, &parameters).await?;
        return Ok(Answer { changed, rows: Vec::new() });
    }
    let rows = client.query_typed(&statement.text, &parameters).await?;
    let columns = rows.first().map(tokio_postgres::Row::columns).unwrap_or_default();
    let columns = Columns::Named(columns.iter().map(|column| column.name().to_owned()).collect());
    read_rows(&columns, &rows, want)
}

/// Drops a prepared statement from the cache if a migration has changed its result.
fn forget_stale(client: &ClientWrapper, text: &str, error: &tokio_postgres::Error) {
    if matches!(error.code().map(tokio_postgres::error::SqlState::code), Some("0A000" | "26000")) {
        client.statement_cache.remove(text, &[]);
    }
}

fn read_rows(
    columns: &Columns,
    rows: &[tokio_postgres::Row],
    want: Want,
) -> Result<Answer, tokio_postgres::Error> {
    let wanted = if want == Want::First { 1 } else { rows.len() };
    let rows = rows.iter().take(wanted).map(|row| read_row(row, columns));
    Ok(Answer { changed: 0, rows: rows.collect::<Result<_, tokio_postgres::Error>>()? })
}

fn read_row(row: &tokio_postgres::Row, columns: &Columns) -> Result<Row, tokio_postgres::Error> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        values.push(row.try_get::<_, Value>(index)?);
    }
    Ok(Row::new(columns.clone(), values))
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(match *ty {
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i64::from(i32::from_sql(ty, raw)?)),
            Type::INT2 => Self::Int(i64::from(i16::from_sql(ty, raw)?)),
            Type::BOOL => Self::Int(i64::from(bool::from_sql(ty, raw)?)),
            Type::BYTEA => Self::Blob(raw.to_vec()),
            _ => Self::Text(String::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Self::Null)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8 | Type::INT4 | Type::INT2 | Type::BOOL | Type::BYTEA) || is_text(ty)
    }
}

fn is_text(ty: &Type) -> bool {
    matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN)
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        match (self, ty) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(number), &Type::UNKNOWN) => {
                write!(out, "{number}")?;
                Ok(IsNull::No)
            }
            (Self::Int(number), &Type::INT8) => number.to_sql(ty, out),
            (Self::Int(number), &Type::INT4) => i32::try_from(*number)?.to_sql(ty, out),
            (Self::Int(number), &Type::INT2) => i16::try_from(*number)?.to_sql(ty, out),
            _ => match (self.as_text(), self.as_bytes()) {
                (Some(text), None) if is_text(ty) => {
                    out.extend_from_slice(text);
                    Ok(IsNull::No)
                }
                (None, Some(bytes)) if *ty == Type::BYTEA => bytes.to_sql(ty, out),
                (None, Some(bytes)) if *ty == Type::UNKNOWN => {
                    out.extend_from_slice(b"\\x");
                    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
                    Ok(IsNull::No)
                }
                _ => Err(format!("the server treats this parameter as a {ty}; use CAST($n AS …)").into()),
            },
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        if *ty == Type::UNKNOWN { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}
