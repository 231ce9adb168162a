//! Comparison of the books with receipts: usage that other servers have recorded as accepted. An audit of the
//! books can't detect usage that was lost completely.

use std::sync::Arc;

use serde::Serialize;

use crate::Billing;
use crate::rules::events;
use crate::store::usage::recording;
use crate::usage::{Event, payer};
use kernel::clock::Time;
use kernel::error::Error;

/// Maximum number of receipts that a statement looks up.
const CHUNK: usize = 500;

/// The result of a comparison.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The number of receipts.
    pub receipts: u64,
    /// Receipts whose event is in the books with the reported content.
    pub found: u64,
    /// Receipts whose event isn't in the books.
    pub missing: Vec<Receipt>,
    /// Receipts whose event is in the books with different content.
    pub different: Vec<Receipt>,
    /// Receipts without an event that are so old that their event may have been deleted.
    pub too_old: u64,
}

/// A receipt that doesn't match the books.
#[derive(Debug, Serialize)]
pub struct Receipt {
    pub source: Arc<str>,
    pub id: Arc<str>,
    pub time: Time,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
}

impl Report {
    /// Returns `true` if every receipt that can be compared is in the books.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.different.is_empty()
    }

    /// Compares receipts, and adds the findings. An event of a key or a project that never existed here
    /// counts as missing, too.
    ///
    /// # Errors
    /// The database fails.
    pub async fn add(&mut self, billing: &Billing, receipts: &[Event]) -> Result<(), Error> {
        let oldest = events::deletable_before(billing.clock.now());
        for chunk in receipts.chunks(CHUNK) {
            let mut payers = Vec::with_capacity(chunk.len());
            for event in chunk {
                payers.push(payer(billing, &event.usage.caller).await?.ok());
            }
            let known = chunk.iter().zip(&payers);
            let keys: Vec<_> = known
                .filter_map(|(event, payer)| {
                    Some((payer.as_ref()?.organization_id, &*event.source, &*event.id))
                })
                .collect();
            let mut hashes =
                recording::stored_hashes(&mut billing.db().read().await?, &keys).await?.into_iter();
            for (event, payer) in chunk.iter().zip(&payers) {
                let stored = payer.as_ref().and_then(|_| hashes.next()).flatten();
                self.receipts += 1;
                match stored {
                    Some(hash) if hash == event.payload_hash() => self.found += 1,
                    Some(_) => self.different.push(Receipt::of(event)),
                    None if event.time < oldest => self.too_old += 1,
                    None => self.missing.push(Receipt::of(event)),
                }
            }
        }
        Ok(())
    }
}

impl Receipt {
    fn of(event: &Event) -> Self {
        Self {
            source: Arc::clone(&event.source),
            id: Arc::clone(&event.id),
            time: event.time,
            prompt_tokens: event.usage.prompt_tokens,
            completion_tokens: event.usage.completion_tokens,
        }
    }
}
