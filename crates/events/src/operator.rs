//! The operator's own events, which belong to the installation and to no organization
//! (docs/contract/webhooks.md#events-of-the-operator).

use serde::Serialize;

use db::Tx;
use kernel::clock::Time;
use kernel::ids::EventId;
use kernel::random::Random;

use crate::{EventType, queue, store};

/// The data of an operator's event.
pub trait OperatorEventData: Serialize + Sync {
    /// The type of the event, one of [`EventType::OPERATOR`].
    fn event_type(&self) -> EventType;
}

/// The data of `audit.drift`.
#[derive(Clone, Debug, Serialize)]
pub struct AuditDrift {
    /// The number of organizations checked.
    pub organizations: u64,
    /// The number of drifts found.
    pub drifts: u64,
    /// The number of drifts that weren't announced by an earlier event.
    pub new_drifts: u64,
    /// The checks that found drifts.
    pub checks: Vec<DriftedCheck>,
}

/// A check of the audit that found drifts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DriftedCheck {
    /// Its name in the report of the audit.
    pub check: String,
    pub drifts: u64,
    pub new_drifts: u64,
}

impl OperatorEventData for AuditDrift {
    fn event_type(&self) -> EventType {
        EventType::AuditDrift
    }
}

/// The data of `usage.refused`.
#[derive(Clone, Debug, Serialize)]
pub struct UsageRefused {
    /// The code of the refusals, as named in the API.
    pub code: &'static str,
    /// `true` if the same event may be counted later.
    pub retryable: bool,
    /// The name of the program that reported the usage; `None` if it couldn't be read.
    pub source: Option<String>,
    /// The number of refused events.
    pub events: u64,
    /// The time of the first refusal.
    pub first_at: Time,
    /// The time of the last refusal.
    pub last_at: Time,
}

impl OperatorEventData for UsageRefused {
    fn event_type(&self) -> EventType {
        EventType::UsageRefused
    }
}

/// The data of `catalog.refused`.
#[derive(Clone, Debug, Serialize)]
pub struct CatalogRefused {
    /// The number of mistakes in the file.
    pub mistakes: usize,
    /// The first mistakes, each with its position, the problem and a correct value.
    pub messages: Vec<String>,
}

impl OperatorEventData for CatalogRefused {
    fn event_type(&self) -> EventType {
        EventType::CatalogRefused
    }
}

/// Queues an event for the subscribed webhooks of the installation. If no webhook subscribes to it, nothing
/// is written.
///
/// # Errors
/// The body is too large, which is impossible, or the database fails.
pub async fn emit<D: OperatorEventData>(
    tx: &mut Tx,
    data: &D,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    let event_type = data.event_type();
    let receivers = store::receivers_of_installation(tx, event_type).await?;
    if receivers.is_empty() {
        return Ok(());
    }
    let id = EventId::new(now, random);
    queue(tx, id, (None, event_type), data, &receivers, now, random).await?;
    Ok(())
}

/// Returns `true` if a webhook of the installation subscribes to events of this type.
///
/// # Errors
/// The database fails.
pub async fn has_receivers(tx: &mut Tx, event_type: EventType) -> Result<bool, db::Error> {
    Ok(!store::receivers_of_installation(tx, event_type).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;

    #[test]
    fn largest_bodies_are_small_enough() {
        let now = Time::from_unix_ms(1_769_851_800_123);
        // A character that JSON escapes with six bytes is the worst case.
        let refused = CatalogRefused { mistakes: usize::MAX, messages: vec!["\u{1}".repeat(300); 10] };
        body(EventType::CatalogRefused, &refused, now).unwrap();
        let refused = UsageRefused {
            code: "correction_too_large",
            retryable: false,
            source: Some("\u{10ffff}".repeat(256)),
            events: u64::MAX,
            first_at: now,
            last_at: now,
        };
        body(EventType::UsageRefused, &refused, now).unwrap();
        let check = DriftedCheck { check: "c".repeat(30), drifts: u64::MAX, new_drifts: u64::MAX };
        let drift = AuditDrift {
            organizations: u64::MAX,
            drifts: u64::MAX,
            new_drifts: u64::MAX,
            checks: vec![check; 100],
        };
        body(EventType::AuditDrift, &drift, now).unwrap();
    }
}
