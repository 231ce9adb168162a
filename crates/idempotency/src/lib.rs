//! Idempotency keys: the first response to a request is stored, so that it can be sent again
//! (docs/contract/README.md#idempotency).
//!
//! A request with a key first claims the key's row with [`begin`], in a separate transaction, so that other
//! requests see that it is running. The operation's own transaction then ends with [`finish`], which stores
//! the response, so that the operation and its response are committed together. A claim ends when its lease
//! expires, for example because its process died. Another request can then take over the row. After that, the
//! operation of the first request can't be committed, because [`finish`] doesn't find its claim.

mod rules;
mod running;
pub mod store;

use std::sync::Arc;

use db::{Db, Tx};
use kernel::clock::{Clock, DAY_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;
use kernel::secrets::sha256;

use rules::Decision;
use running::{Run, Running};

pub use db::Uncommitted;

/// The time for which a response is kept, in milliseconds.
pub const RETENTION_MS: i64 = DAY_MS;
/// The lease of a claim, in milliseconds. It is longer than any operation takes.
pub const LEASE_MS: i64 = 60 * SECOND_MS;

/// The maximum number of rows that are read or removed at once.
const SLICE: i64 = 500;

/// Returns a time that is later than the end of any valid lease.
fn never(now: Time) -> Time {
    now.plus_ms(2 * LEASE_MS)
}

/// The handle of idempotency keys; cheap to clone.
#[derive(Clone)]
pub struct Idempotency {
    db: Db,
    clock: Clock,
    random: Random,
    sealer: Arc<Sealer>,
    running: Arc<Running>,
}

impl Idempotency {
    /// Creates a handle. `sealer` seals the stored responses.
    pub fn new(db: Db, clock: Clock, random: Random, sealer: Arc<Sealer>) -> Self {
        Self { db, clock, random, sealer, running: Arc::default() }
    }
}

/// A request with an idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The id of the row: a digest of the caller, the method, the path and the key.
    id: [u8; 32],
    /// A digest of the request's content.
    content_hash: [u8; 32],
}

impl Request {
    /// Creates a request of this caller, with this method and path, this key and this content.
    pub fn new(caller: &str, operation: [&str; 2], key: &str, content: [&[u8]; 2]) -> Self {
        let [method, path] = operation.map(str::as_bytes);
        Self {
            id: digest(&[caller.as_bytes(), method, path, key.as_bytes()]),
            content_hash: digest(&content),
        }
    }
}

/// Returns the SHA-256 hash of several byte strings, each prefixed with its length.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    sha256(&bytes)
}

/// The claim of a request on its key.
#[derive(Clone, Debug)]
pub struct Attempt {
    id: [u8; 32],
    /// A random id of this attempt, which distinguishes its claim from the claim of a request that has taken
    /// over the key.
    holder: String,
    /// Repeated requests in this process wait until this is dropped.
    _run: Arc<Run>,
}

/// The next step for a request with a key.
#[derive(Clone, Debug)]
pub enum Begun {
    /// Run the operation, and then call [`finish`], [`keep`] or [`release`].
    First(Attempt),
    /// Send this stored response again.
    Answered(Vec<u8>),
}

/// Claims the key for a request, or returns the stored response.
///
/// # Errors
/// 409 if the key was used with different content, or while another request with the key is running.
pub async fn begin(idempotency: &Idempotency, request: &Request) -> Result<Begun, Error> {
    if let Some(answer) = find(idempotency, request).await? {
        return Ok(Begun::Answered(answer));
    }
    let now = idempotency.clock.now();
    let holder = format!("{:032x}", u128::from_be_bytes(idempotency.random.bytes()));
    let claim = store::Claim { id: request.id, content_hash: request.content_hash, holder: &holder };
    let mut tx = idempotency.db.write().await?;
    if store::claim(&mut tx, &claim, now).await? {
        let run = idempotency.running.begin(request.id);
        tx.commit().await?;
        return Ok(Begun::First(Attempt { id: request.id, holder, _run: run }));
    }
    drop(tx);
    // Another request has claimed the key first.
    let answer = find(idempotency, request).await?;
    Ok(Begun::Answered(answer.ok_or(Code::IdempotencyInProgress)?))
}

/// Waits until the request with the same key that is running in this process has ended. Returns `false` if no
/// such request is running, or if the wait takes too long. In both cases, [`begin`] still returns a correct
/// result.
pub async fn wait(idempotency: &Idempotency, request: &Request) -> bool {
    idempotency.running.wait(request.id).await
}

/// Returns the stored response; `None` if the request may run.
async fn find(idempotency: &Idempotency, request: &Request) -> Result<Option<Vec<u8>>, Error> {
    let found = store::find(&mut idempotency.db.read().await?, request.id).await?;
    match rules::decide(found, &request.content_hash, idempotency.clock.now()) {
        Decision::Run => Ok(None),
        Decision::Answer(sealed) => Ok(Some(idempotency.sealer.open(&sealed, &place(request.id))?)),
        Decision::InProgress => Err(Code::IdempotencyInProgress.into()),
        Decision::Reused => Err(Error::new(Code::IdempotencyKeyReused).param("idempotency-key")),
    }
}

/// Stores the response in the operation's own transaction, which the caller commits.
///
/// # Errors
/// 409 if another request has taken over the key. The transaction must not be committed in this case.
pub async fn finish(
    idempotency: &Idempotency,
    attempt: &Attempt,
    tx: &mut Tx,
    answer: &[u8],
) -> Result<(), Error> {
    let sealed = idempotency.sealer.seal(answer, &place(attempt.id), &idempotency.random)?;
    if store::finish(tx, attempt.id, &attempt.holder, sealed).await? {
        Ok(())
    } else {
        Err(Code::IdempotencyInProgress.into())
    }
}

/// Stores the response of an operation that changed nothing, in a separate transaction.
///
/// # Errors
/// 409 if another request has taken over the key. Nothing is stored in this case.
pub async fn keep(idempotency: &Idempotency, attempt: &Attempt, answer: &[u8]) -> Result<(), Error> {
    let mut tx = idempotency.db.write().await?;
    finish(idempotency, attempt, &mut tx, answer).await?;
    Ok(tx.commit().await?)
}

/// Releases the key unless a response was stored. The next request with the key can then run.
///
/// # Errors
/// The database fails.
pub async fn release(idempotency: &Idempotency, attempt: &Attempt) -> Result<(), Error> {
    let mut tx = idempotency.db.write().await?;
    store::release(&mut tx, attempt.id, &attempt.holder).await?;
    Ok(tx.commit().await?)
}

/// Removes the rows that are older than [`RETENTION_MS`], in slices, and returns their number.
///
/// # Errors
/// The database fails.
pub async fn remove_expired(idempotency: &Idempotency) -> Result<u64, Error> {
    let before = idempotency.clock.now().plus_ms(-RETENTION_MS);
    let mut removed = 0;
    let oldest = store::oldest(&mut idempotency.db.read().await?).await?;
    if oldest.is_none_or(|oldest| oldest > before) {
        return Ok(removed);
    }
    loop {
        let mut tx = idempotency.db.write().await?;
        let rows = store::remove(&mut tx, before, SLICE).await?;
        tx.commit().await?;
        removed += rows;
        if i64::try_from(rows).is_ok_and(|rows| rows < SLICE) {
            return Ok(removed);
        }
    }
}

/// The numbers of responses that were resealed and left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    pub resealed: u64,
    pub unchanged: u64,
}

/// Reseals every response that isn't sealed with the current master key.
///
/// # Errors
/// A response can't be opened, or the database fails.
pub async fn reseal(sealer: &Sealer, random: &Random, tx: &mut Tx) -> Result<Resealed, Error> {
    let mut counts = Resealed::default();
    let mut after = Vec::new();
    loop {
        let page = store::fetch_sealed(tx, &after, SLICE).await?;
        let Some((last, _)) = page.last() else { return Ok(counts) };
        after = last.to_vec();
        for (id, answer) in page {
            match sealer.reseal(&answer, &place(id), random)? {
                Some(sealed) => {
                    store::set_sealed(tx, id, sealed).await?;
                    counts.resealed += 1;
                }
                None => counts.unchanged += 1,
            }
        }
    }
}

/// Returns the associated data of a sealed response, so that it can't be moved to another row.
fn place(id: [u8; 32]) -> String {
    let [high, low] = [id.first_chunk(), id.last_chunk()].map(|half| half.copied().unwrap_or_default());
    format!("idempotency/{:032x}{:032x}", u128::from_be_bytes(high), u128::from_be_bytes(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_depends_on_every_part() {
        let base = Request::new("user_1", ["POST", "/v1/a"], "k", [b"q", b"body"]);
        assert_eq!(base, Request::new("user_1", ["POST", "/v1/a"], "k", [b"q", b"body"]));
        let others = [
            Request::new("user_2", ["POST", "/v1/a"], "k", [b"q", b"body"]),
            Request::new("user_1", ["PUT", "/v1/a"], "k", [b"q", b"body"]),
            Request::new("user_1", ["POST", "/v1/b"], "k", [b"q", b"body"]),
            Request::new("user_1", ["POST", "/v1/a"], "K", [b"q", b"body"]),
            // The same text with another boundary between its parts.
            Request::new("user_1", ["POST", "/v1/ak"], "", [b"q", b"body"]),
        ];
        for other in others {
            assert_ne!(base.id, other.id);
            assert_eq!(base.content_hash, other.content_hash);
        }
        for content in [[b"q".as_slice(), b"Body"], [b"", b"qbody"], [b"qb", b"ody"]] {
            let other = Request::new("user_1", ["POST", "/v1/a"], "k", content);
            assert_eq!(base.id, other.id);
            assert_ne!(base.content_hash, other.content_hash);
        }
    }

    #[test]
    fn place_names_the_whole_row() {
        let mut id = [0; 32];
        (id[0], id[15], id[16], id[31]) = (0xa1, 0xb2, 0xc3, 0xd4);
        let zeros = "0".repeat(28);
        assert_eq!(place(id), format!("idempotency/a1{zeros}b2c3{zeros}d4"));
    }
}
