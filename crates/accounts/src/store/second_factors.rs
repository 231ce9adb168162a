//! The second factors of users: the seeds of one-time codes, sealed with the master key, and the SHA-256
//! hashes of recovery codes. A user's rows are changed only under the account's lock.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::UserId;

/// A user's seed of one-time codes.
#[derive(Clone, PartialEq, Eq)]
pub struct TotpRow {
    pub sealed_seed: Vec<u8>,
    /// The time at which the first code confirmed the seed.
    pub confirmed_at: Time,
}

db::row!(TotpRow { sealed_seed, confirmed_at });

/// Returns the confirmed seed of a user, if any.
pub async fn totp(tx: &mut Tx, user_id: UserId) -> Result<Option<TotpRow>, db::Error> {
    sql("SELECT sealed_seed, confirmed_at FROM totp WHERE user_id = $1").bind(user_id).optional(tx).await
}

/// Consumes the code of a time step. Returns `false` if the code of this step or of a later one was used
/// before. Of two concurrent uses of a code, only one succeeds.
pub async fn use_step(tx: &mut Tx, user_id: UserId, step: i64) -> Result<bool, db::Error> {
    let used = sql("UPDATE totp SET last_step = $2 WHERE user_id = $1 AND last_step < $2")
        .bind(user_id)
        .bind(step)
        .execute(tx)
        .await?;
    Ok(used == 1)
}

/// Removes a user's seed. Returns `false` if the user had none.
pub async fn remove_totp(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    Ok(sql("DELETE FROM totp WHERE user_id = $1").bind(user_id).execute(tx).await? == 1)
}

/// A seed that no code has confirmed yet.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrolmentRow {
    pub sealed_seed: Vec<u8>,
    pub expires_at: Time,
}

db::row!(EnrolmentRow { sealed_seed, expires_at });

/// Stores an unconfirmed seed, in place of an earlier one.
pub async fn set_enrolment(tx: &mut Tx, user_id: UserId, row: &EnrolmentRow) -> Result<(), db::Error> {
    sql("INSERT INTO totp_enrolments (user_id, sealed_seed, expires_at) VALUES ($1, $2, $3)
         ON CONFLICT (user_id) DO UPDATE
         SET sealed_seed = excluded.sealed_seed, expires_at = excluded.expires_at")
    .bind(user_id)
    .bind(row.sealed_seed.as_slice())
    .bind(row.expires_at)
    .defer(tx)
    .await
}

/// Returns the unconfirmed seed.
pub async fn enrolment(tx: &mut Tx, user_id: UserId, now: Time) -> Result<Option<EnrolmentRow>, db::Error> {
    sql("SELECT sealed_seed, expires_at FROM totp_enrolments WHERE user_id = $1 AND expires_at > $2")
        .bind(user_id)
        .bind(now)
        .optional(tx)
        .await
}

/// Removes the unconfirmed seed.
pub async fn remove_enrolment(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("DELETE FROM totp_enrolments WHERE user_id = $1").bind(user_id).defer(tx).await
}

/// Activates a seed, in place of an earlier one. `step` is the time step of the code that confirmed it.
pub async fn set_totp(
    tx: &mut Tx,
    user_id: UserId,
    sealed_seed: &[u8],
    step: i64,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO totp (user_id, sealed_seed, confirmed_at, last_step) VALUES ($1, $2, $3, $4)
         ON CONFLICT (user_id) DO UPDATE
         SET sealed_seed = excluded.sealed_seed, confirmed_at = excluded.confirmed_at,
             last_step = excluded.last_step")
    .bind(user_id)
    .bind(sealed_seed)
    .bind(now)
    .bind(step)
    .defer(tx)
    .await
}

/// Removes seeds that weren't confirmed in time, and returns their number.
pub async fn remove_expired_enrolments(tx: &mut Tx, now: Time) -> Result<u64, db::Error> {
    sql(REMOVE_EXPIRED_ENROLMENTS).bind(now).execute(tx).await
}

/// The statement of [`remove_expired_enrolments`].
pub const REMOVE_EXPIRED_ENROLMENTS: &str = "DELETE FROM totp_enrolments WHERE expires_at <= $1";

/// The number and the creation time of a user's recovery codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryCodeCount {
    /// The number of unused codes.
    pub left: i64,
    /// The time at which the codes were created; `None` if the user has none.
    pub created_at: Option<Time>,
}

db::row!(RecoveryCodeCount { left: "codes_left", created_at });

/// Counts the recovery codes of a user.
pub async fn count_recovery_codes(tx: &mut Tx, user_id: UserId) -> Result<RecoveryCodeCount, db::Error> {
    sql(COUNT_RECOVERY_CODES).bind(user_id).one(tx).await
}

/// The statement of [`count_recovery_codes`].
pub const COUNT_RECOVERY_CODES: &str =
    "SELECT COUNT(*) - COUNT(used_at) AS codes_left, MAX(created_at) AS created_at
     FROM recovery_codes WHERE user_id = $1";

/// Stores new recovery codes, in place of all earlier ones.
pub async fn replace_recovery_codes(
    tx: &mut Tx,
    user_id: UserId,
    code_hashes: &[[u8; 32]],
    now: Time,
) -> Result<(), db::Error> {
    remove_recovery_codes(tx, user_id).await?;
    for code_hash in code_hashes {
        sql("INSERT INTO recovery_codes (user_id, code_hash, created_at) VALUES ($1, $2, $3)")
            .bind(user_id)
            .bind(*code_hash)
            .bind(now)
            .defer(tx)
            .await?;
    }
    Ok(())
}

/// Consumes a recovery code. Returns `false` if the user has no such code, or it was used before.
pub async fn use_recovery_code(
    tx: &mut Tx,
    user_id: UserId,
    code_hash: [u8; 32],
    now: Time,
) -> Result<bool, db::Error> {
    let used = sql(USE_RECOVERY_CODE).bind(user_id).bind(code_hash).bind(now).execute(tx).await?;
    Ok(used == 1)
}

/// The statement of [`use_recovery_code`].
pub const USE_RECOVERY_CODE: &str = "UPDATE recovery_codes SET used_at = $3
     WHERE user_id = $1 AND code_hash = $2 AND used_at IS NULL";

/// Removes all recovery codes of a user.
pub async fn remove_recovery_codes(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("DELETE FROM recovery_codes WHERE user_id = $1").bind(user_id).defer(tx).await
}

/// A table with sealed seeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedTable {
    Totp,
    Enrolments,
}

impl SeedTable {
    /// Every table with sealed seeds.
    pub const ALL: [Self; 2] = [Self::Totp, Self::Enrolments];

    const fn statements(self) -> (&'static str, &'static str) {
        match self {
            Self::Totp => (
                "SELECT user_id, sealed_seed FROM totp WHERE user_id > $1 ORDER BY user_id LIMIT $2",
                "UPDATE totp SET sealed_seed = $2 WHERE user_id = $1",
            ),
            Self::Enrolments => (
                "SELECT user_id, sealed_seed FROM totp_enrolments WHERE user_id > $1 ORDER BY user_id LIMIT $2",
                "UPDATE totp_enrolments SET sealed_seed = $2 WHERE user_id = $1",
            ),
        }
    }
}

/// Returns a page of sealed seeds, ordered by user id, that begins after the user id `after`.
pub async fn fetch_sealed(
    tx: &mut Tx,
    table: SeedTable,
    after: &str,
    limit: i64,
) -> Result<Vec<(UserId, Vec<u8>)>, db::Error> {
    sql(table.statements().0).bind(after).bind(limit).all(tx).await
}

/// Replaces a sealed seed.
pub async fn set_sealed(
    tx: &mut Tx,
    table: SeedTable,
    user_id: UserId,
    sealed_seed: &[u8],
) -> Result<(), db::Error> {
    sql(table.statements().1).bind(user_id).bind(sealed_seed).defer(tx).await
}
