//! Reservations: money set aside for calls that are under way. Whoever adds, changes or removes one holds the lock on its
//! organization's wallet, so that `reserved_nano` is their sum at all times and nobody waits here in a circle.

use std::sync::LazyLock;

use crate::store::wallets::nano;
use db::sized::{Sizes, values};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{CallerId, OrganizationId, ProjectId, ReservationId};
use kernel::money::Nano;

/// A reservation to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewReservation {
    /// Its id.
    pub id: ReservationId,
    /// Whose money it is.
    pub organization_id: OrganizationId,
    /// The project that the call is for.
    pub project_id: ProjectId,
    /// The caller; stored as `api_key_id`.
    pub caller: CallerId,
    /// The model.
    pub model: String,
    /// The call's largest possible price.
    pub amount: Nano,
    /// The caller's own name for the question, by which it may be asked again.
    pub request_id: Option<String>,
}

/// The call that a reservation is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedCall {
    project_id: ProjectId,
    /// `None` of a person's call from before this was kept.
    caller: Option<CallerId>,
    model: String,
    amount: Nano,
}

impl NewReservation {
    /// The call that it is for.
    pub fn call(&self) -> ReservedCall {
        ReservedCall {
            project_id: self.project_id,
            caller: Some(self.caller),
            model: self.model.clone(),
            amount: self.amount,
        }
    }
}

/// A reservation as its question finds it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its id.
    pub id: ReservationId,
    /// The call that it is for.
    pub call: ReservedCall,
    /// When it ends by itself.
    pub expires_at: Time,
}

impl FromRow for Asked {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            call: ReservedCall {
                project_id: row.get("project_id")?,
                caller: row.get("api_key_id")?,
                model: row.get("model")?,
                amount: row.get("amount_nano")?,
            },
            expires_at: row.get("expires_at")?,
        })
    }
}

/// The reservation that was made for a question of this id. Its wallet is locked.
pub async fn asked(
    tx: &mut Tx,
    organization_id: OrganizationId,
    request_id: &str,
) -> Result<Option<Asked>, db::Error> {
    sql("SELECT id, project_id, api_key_id, model, amount_nano, expires_at FROM reservations
         WHERE organization_id = $1 AND request_id = $2")
    .bind(organization_id)
    .bind(request_id)
    .optional(tx)
    .await
}

/// What is known of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Its id.
    pub id: ReservationId,
    /// Whose money it is.
    pub organization_id: OrganizationId,
    /// How much.
    pub amount: Nano,
}

impl FromRow for Reserved {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            organization_id: row.get("organization_id")?,
            amount: row.get("amount_nano")?,
        })
    }
}

static INSERT: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "INSERT INTO reservations (id, organization_id, project_id, api_key_id, model, amount_nano, created_at, expires_at,
                 request_id)
             VALUES {}",
            values(rows, 9)
        )
    })
});

/// Adds reservations.
pub async fn insert(
    tx: &mut Tx,
    reservations: &[&NewReservation],
    now: Time,
    expires_at: Time,
) -> Result<(), db::Error> {
    for (text, chunk) in INSERT.chunks(reservations) {
        let mut statement = sql(text).expecting(chunk.len() * 9);
        for new in chunk {
            statement = statement
                .bind(new.id)
                .bind(new.organization_id)
                .bind(new.project_id)
                .bind(new.caller)
                .bind(new.model.as_str())
                .bind(nano(new.amount)?)
                .bind(now)
                .bind(expires_at)
                .bind(new.request_id.as_deref());
        }
        statement.defer(tx).await?;
    }
    Ok(())
}

/// `$1, $2`: the parameters of so many ids, the first of which has this number.
fn parameters(rows: usize, first: usize) -> String {
    let names: Vec<_> = (first..first + rows).map(|number| format!("${number}")).collect();
    names.join(", ")
}

static FIND: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "SELECT id, organization_id, amount_nano FROM reservations WHERE id IN ({})",
            parameters(rows, 1)
        )
    })
});

/// Those of these that are there. Their organization and amount never change; whether they are still there when the
/// wallet is locked is another question.
pub async fn find(tx: &mut Tx, ids: &[ReservationId]) -> Result<Vec<Reserved>, db::Error> {
    let mut found = Vec::new();
    for (text, chunk) in FIND.chunks(ids) {
        let statement = chunk.iter().fold(sql(text), |statement, id| statement.bind(*id));
        found.extend(statement.all::<Reserved>(tx).await?);
    }
    Ok(found)
}

static END: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // The list of ids leads to the rows; the pairs keep an organization from ending another's.
        let ids: Vec<_> = (0..rows).map(|row| format!("${}", row * 2 + 1)).collect();
        let pairs =
            (0..rows).map(|row| format!("(id = ${} AND organization_id = ${})", row * 2 + 1, row * 2 + 2));
        format!(
            "DELETE FROM reservations WHERE id IN ({}) AND ({}) RETURNING id, organization_id, amount_nano",
            ids.join(", "),
            pairs.collect::<Vec<_>>().join(" OR ")
        )
    })
});

/// Ends these reservations, each only if it is this organization's; the ones that were there. Their wallets are locked.
pub async fn end(
    tx: &mut Tx,
    reservations: &[(ReservationId, OrganizationId)],
) -> Result<Vec<Reserved>, db::Error> {
    let mut ended = Vec::new();
    for (text, chunk) in END.chunks(reservations) {
        let statement =
            chunk.iter().fold(sql(text), |statement, (id, whose)| statement.bind(*id).bind(*whose));
        ended.extend(statement.all::<Reserved>(tx).await?);
    }
    Ok(ended)
}

static EXTEND: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "UPDATE reservations SET expires_at = $1 WHERE id IN ({}) RETURNING id, organization_id, amount_nano",
            parameters(rows, 2)
        )
    })
});

/// Lets these reservations live on; the ones that were there. Their wallets are locked.
pub async fn extend(
    tx: &mut Tx,
    ids: &[ReservationId],
    expires_at: Time,
) -> Result<Vec<Reserved>, db::Error> {
    let mut extended = Vec::new();
    for (text, chunk) in EXTEND.chunks(ids) {
        let statement = chunk.iter().fold(sql(text).bind(expires_at), |statement, id| statement.bind(*id));
        extended.extend(statement.all::<Reserved>(tx).await?);
    }
    Ok(extended)
}

/// How many calls of an organization to a model are under way, as far as money is set aside for them.
pub async fn count(tx: &mut Tx, organization_id: OrganizationId, model: &str) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM reservations WHERE organization_id = $1 AND model = $2")
        .bind(organization_id)
        .bind(model)
        .one(tx)
        .await?;
    Ok(count)
}

/// Reservations whose time is over, the oldest first.
pub async fn due(tx: &mut Tx, now: Time, at_most: i64) -> Result<Vec<Reserved>, db::Error> {
    sql("SELECT id, organization_id, amount_nano FROM reservations WHERE expires_at <= $1
         ORDER BY expires_at, id LIMIT $2")
    .bind(now)
    .bind(at_most)
    .all(tx)
    .await
}

/// Gives reservations that would live on after `latest` their time from now: a clock has been set back since they were made.
/// How many.
pub async fn shorten(tx: &mut Tx, expires_at: Time, latest: Time) -> Result<u64, db::Error> {
    sql("UPDATE reservations SET expires_at = $1 WHERE expires_at > $2")
        .bind(expires_at)
        .bind(latest)
        .execute(tx)
        .await
}

/// Ends this reservation if its time is still over: it may have been extended meanwhile. Its wallet is locked.
pub async fn expire(tx: &mut Tx, id: ReservationId, now: Time) -> Result<Option<Reserved>, db::Error> {
    sql("DELETE FROM reservations WHERE id = $1 AND expires_at <= $2 RETURNING id, organization_id, amount_nano")
        .bind(id)
        .bind(now)
        .optional(tx)
        .await
}
