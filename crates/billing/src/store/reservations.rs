//! Reservations: money that is set aside for calls in progress. The wallet of the organization is locked
//! while a reservation is added, changed or removed. Therefore `reserved_nano` is always their sum, and
//! transactions can't deadlock here.

use std::sync::LazyLock;

use crate::rules::budgets::Spender;
use crate::store::wallets::nano;
use db::sized::{Sizes, values};
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{CallerId, OrganizationId, ProjectId, ReservationId};
use kernel::money::Nano;

/// A reservation to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewReservation {
    pub id: ReservationId,
    pub organization_id: OrganizationId,
    /// The project that the call is for.
    pub project_id: ProjectId,
    /// The caller, stored as `api_key_id`.
    pub caller: CallerId,
    pub model: String,
    /// The highest price that the call can have.
    pub amount: Nano,
    /// The gateway's id of the call, by which a repeated request finds the reservation.
    pub request_id: Option<String>,
    /// The time at which the call began, which is also the time of its usage. It isn't stored.
    pub began_at: Time,
}

/// The call that a reservation is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedCall {
    project_id: ProjectId,
    /// `None` for calls of users by earlier versions, which didn't store the caller.
    caller: Option<CallerId>,
    model: String,
    amount: Nano,
}

impl NewReservation {
    /// Returns the call that the reservation is for.
    pub fn call(&self) -> ReservedCall {
        ReservedCall {
            project_id: self.project_id,
            caller: Some(self.caller),
            model: self.model.clone(),
            amount: self.amount,
        }
    }
}

/// A stored reservation with its call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReservation {
    pub id: ReservationId,
    pub call: ReservedCall,
    pub expires_at: Time,
}

db::row!(ReservedCall { project_id, caller: "api_key_id", model, amount: "amount_nano" });
db::row!(StoredReservation { id, call: ReservedCall::from_row, expires_at });

/// Returns the reservation that was made with this request id. The wallet must be locked.
pub async fn by_request_id(
    tx: &mut Tx,
    organization_id: OrganizationId,
    request_id: &str,
) -> Result<Option<StoredReservation>, db::Error> {
    sql("SELECT id, project_id, api_key_id, model, amount_nano, expires_at FROM reservations
         WHERE organization_id = $1 AND request_id = $2")
    .bind(organization_id)
    .bind(request_id)
    .optional(tx)
    .await
}

/// A stored reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservedAmount {
    pub id: ReservationId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    /// `None` for calls of users by earlier versions, which didn't store the caller.
    pub caller: Option<CallerId>,
    pub amount: Nano,
}

impl From<&ReservedAmount> for Spender {
    fn from(reserved: &ReservedAmount) -> Self {
        let ReservedAmount { organization_id, project_id, caller, .. } = *reserved;
        Self { organization_id, project_id, caller }
    }
}

impl From<&NewReservation> for Spender {
    fn from(new: &NewReservation) -> Self {
        Self { organization_id: new.organization_id, project_id: new.project_id, caller: Some(new.caller) }
    }
}

db::row!(ReservedAmount { id, organization_id, project_id, caller: "api_key_id", amount: "amount_nano" });

static INSERT: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "INSERT INTO reservations (id, organization_id, project_id, api_key_id, model, amount_nano,
                 created_at, expires_at, request_id)
             VALUES {}",
            values(rows, 9)
        )
    })
});

/// Adds reservations, each with its end.
pub async fn insert(
    tx: &mut Tx,
    reservations: &[(&NewReservation, Time)],
    now: Time,
) -> Result<(), db::Error> {
    for (text, chunk) in INSERT.chunks(reservations) {
        let mut statement = sql(text).expecting(chunk.len() * 9);
        for (new, expires_at) in chunk {
            statement = statement
                .bind(new.id)
                .bind(new.organization_id)
                .bind(new.project_id)
                .bind(new.caller)
                .bind(new.model.as_str())
                .bind(nano(new.amount)?)
                .bind(now)
                .bind(*expires_at)
                .bind(new.request_id.as_deref());
        }
        statement.defer(tx).await?;
    }
    Ok(())
}

/// Returns the placeholders of `rows` ids from the number `first` on: `$1, $2`.
fn parameters(rows: usize, first: usize) -> String {
    let names: Vec<_> = (first..first + rows).map(|number| format!("${number}")).collect();
    names.join(", ")
}

static FIND: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "SELECT id, organization_id, project_id, api_key_id, amount_nano FROM reservations
             WHERE id IN ({})",
            parameters(rows, 1)
        )
    })
});

/// Returns the reservations with these ids that exist. Their organizations and amounts never change, but they
/// may have ended by the time the wallet is locked.
pub async fn find(tx: &mut Tx, ids: &[ReservationId]) -> Result<Vec<ReservedAmount>, db::Error> {
    let mut found = Vec::new();
    for (text, chunk) in FIND.chunks(ids) {
        let statement = chunk.iter().fold(sql(text), |statement, id| statement.bind(*id));
        found.extend(statement.all::<ReservedAmount>(tx).await?);
    }
    Ok(found)
}

static END: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // The list of ids finds the rows; the pairs prevent an organization from ending the reservation of
        // another.
        let ids: Vec<_> = (0..rows).map(|row| format!("${}", row * 2 + 1)).collect();
        let pairs =
            (0..rows).map(|row| format!("(id = ${} AND organization_id = ${})", row * 2 + 1, row * 2 + 2));
        format!(
            "DELETE FROM reservations WHERE id IN ({}) AND ({})
             RETURNING id, organization_id, project_id, api_key_id, amount_nano",
            ids.join(", "),
            pairs.collect::<Vec<_>>().join(" OR ")
        )
    })
});

/// Ends these reservations, each only if it belongs to its organization. Returns those that existed. The
/// wallets must be locked.
pub async fn end(
    tx: &mut Tx,
    reservations: &[(ReservationId, OrganizationId)],
) -> Result<Vec<ReservedAmount>, db::Error> {
    let mut ended = Vec::new();
    for (text, chunk) in END.chunks(reservations) {
        let statement =
            chunk.iter().fold(sql(text), |statement, (id, whose)| statement.bind(*id).bind(*whose));
        ended.extend(statement.all::<ReservedAmount>(tx).await?);
    }
    Ok(ended)
}

static EXTEND: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "UPDATE reservations SET expires_at = $1 WHERE id IN ({}) AND closed = 0
             RETURNING id, organization_id, project_id, api_key_id, amount_nano",
            parameters(rows, 2)
        )
    })
});

/// Extends these reservations. Returns those that existed and weren't about to be captured. The wallets must
/// be locked.
pub async fn extend(
    tx: &mut Tx,
    ids: &[ReservationId],
    expires_at: Time,
) -> Result<Vec<ReservedAmount>, db::Error> {
    let mut extended = Vec::new();
    for (text, chunk) in EXTEND.chunks(ids) {
        let statement = chunk.iter().fold(sql(text).bind(expires_at), |statement, id| statement.bind(*id));
        extended.extend(statement.all::<ReservedAmount>(tx).await?);
    }
    Ok(extended)
}

/// Returns the number of an organization's calls to a model that are in progress with a reservation.
pub async fn count(tx: &mut Tx, organization_id: OrganizationId, model: &str) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM reservations WHERE organization_id = $1 AND model = $2")
        .bind(organization_id)
        .bind(model)
        .one(tx)
        .await?;
    Ok(count)
}

/// An expired reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueReservation {
    pub id: ReservationId,
    pub organization_id: OrganizationId,
    pub expires_at: Time,
    /// `true` if the gateway has recorded progress of the call.
    pub has_progress: bool,
}

db::row!(DueReservation { id, organization_id, expires_at, has_progress });

/// Returns expired reservations after this one, the oldest first.
pub async fn due(
    tx: &mut Tx,
    now: Time,
    after: Option<DueReservation>,
    at_most: i64,
) -> Result<Vec<DueReservation>, db::Error> {
    let (expires_at, id) = after.map_or((Time::from_unix_ms(i64::MIN), String::new()), |after| {
        (after.expires_at, after.id.to_string())
    });
    sql("SELECT id, organization_id, expires_at,
             CAST(CASE WHEN completion_tokens IS NULL THEN 0 ELSE 1 END AS BIGINT) AS has_progress
         FROM reservations WHERE expires_at <= $1 AND (expires_at, id) > ($2, $3)
         ORDER BY expires_at, id LIMIT $4")
    .bind(now)
    .bind(expires_at)
    .bind(id)
    .bind(at_most)
    .all(tx)
    .await
}

/// Sets the end of reservations that expire after `latest`, because a clock was set back since they were
/// made. Returns the number of changed reservations.
pub async fn shorten(tx: &mut Tx, expires_at: Time, latest: Time) -> Result<u64, db::Error> {
    sql("UPDATE reservations SET expires_at = $1 WHERE expires_at > $2")
        .bind(expires_at)
        .bind(latest)
        .execute(tx)
        .await
}

/// Ends this reservation if its call has no progress to charge and it is still expired; it may have been
/// extended in the meantime. The wallet must be locked.
pub async fn expire(tx: &mut Tx, id: ReservationId, now: Time) -> Result<Option<ReservedAmount>, db::Error> {
    sql("DELETE FROM reservations WHERE id = $1 AND expires_at <= $2 AND completion_tokens IS NULL
         RETURNING id, organization_id, project_id, api_key_id, amount_nano")
    .bind(id)
    .bind(now)
    .optional(tx)
    .await
}
