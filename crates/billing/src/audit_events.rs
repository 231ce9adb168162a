//! The operator's event about the findings of the regular audit
//! (docs/contract/webhooks.md#events-of-the-operator).

use std::collections::{BTreeMap, BTreeSet};

use db::Tx;
use events::operator::{self, AuditDrift, DriftedCheck};
use events::{EventType, announcements};
use kernel::clock::Time;
use kernel::random::Random;

use crate::audit::Report;
use crate::rules::audit::Drift;

/// Maximum number of drifts that are remembered so that they aren't announced again.
const MAX_REMEMBERED: usize = 10_000;

/// Sends drifts that no earlier audit has found to the installation's webhooks, all in one event, and forgets
/// drifts that no longer exist. A drift is identified by its check and its subject; its figures may change.
///
/// # Errors
/// The database fails.
pub(crate) async fn announce(
    tx: &mut Tx,
    report: &Report,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    announcements::lock(tx).await?;
    let known = announcements::announced(tx, EventType::AuditDrift).await?;
    let found: BTreeSet<String> = report.drifts.iter().map(subject).collect();
    let (stay, gone): (BTreeSet<_>, BTreeSet<_>) =
        known.into_iter().partition(|subject| found.contains(subject));
    for subject in gone {
        announcements::forget(tx, EventType::AuditDrift, &subject).await?;
    }
    if !operator::has_receivers(tx, EventType::AuditDrift).await? {
        return Ok(());
    }
    let room = MAX_REMEMBERED.saturating_sub(stay.len());
    let new: BTreeSet<String> = found.difference(&stay).take(room).cloned().collect();
    if new.is_empty() {
        return Ok(());
    }
    for subject in &new {
        announcements::announce(tx, EventType::AuditDrift, subject, now).await?;
    }
    operator::emit(tx, &event(report, |drift| new.contains(&subject(drift))), now, random).await
}

/// Returns the subject of a drift: its organization, its check and its object.
fn subject(drift: &Drift) -> String {
    let organization = drift.organization_id.as_deref().unwrap_or_default();
    announcements::subject(&[organization, &drift.invariant.to_string(), &drift.subject])
}

/// Returns the event of a report, with its checks sorted by name.
fn event(report: &Report, is_new: impl Fn(&Drift) -> bool) -> AuditDrift {
    let mut checks: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for drift in &report.drifts {
        let (drifts, new_drifts) = checks.entry(drift.invariant.to_string()).or_default();
        *drifts += 1;
        *new_drifts += u64::from(is_new(drift));
    }
    AuditDrift {
        organizations: report.checked.organizations,
        drifts: checks.values().map(|(drifts, _)| drifts).sum(),
        new_drifts: checks.values().map(|(_, new_drifts)| new_drifts).sum(),
        checks: checks
            .into_iter()
            .map(|(check, (drifts, new_drifts))| DriftedCheck { check, drifts, new_drifts })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Checked;
    use crate::rules::audit::Invariant;

    fn drift(organization: &str, invariant: Invariant, about: &str, found: &str) -> Drift {
        Drift {
            organization_id: Some(organization.to_owned()).filter(|id| !id.is_empty()),
            invariant,
            subject: about.to_owned(),
            expected: "0".to_owned(),
            found: found.to_owned(),
        }
    }

    #[test]
    fn drift_is_the_same_with_other_figures_only() {
        let one = drift("org_1", Invariant::WalletPosted, "wallet", "1");
        assert_eq!(subject(&one), subject(&Drift { found: "2".to_owned(), ..one.clone() }));
        for other in [
            drift("org_2", Invariant::WalletPosted, "wallet", "1"),
            drift("", Invariant::WalletPosted, "wallet", "1"),
            drift("org_1", Invariant::WalletReserved, "wallet", "1"),
            drift("org_1", Invariant::WalletPosted, "other", "1"),
        ] {
            assert_ne!(subject(&one), subject(&other), "{other}");
        }
    }

    #[test]
    fn event_counts_drifts_by_check() {
        let drifts = vec![
            drift("org_1", Invariant::WalletPosted, "wallet", "1"),
            drift("org_2", Invariant::WalletPosted, "wallet", "1"),
            drift("", Invariant::InvoiceNumber, "numbers", "1"),
        ];
        let report = Report { checked: Checked { organizations: 7, ..Checked::default() }, drifts };
        let event = event(&report, |drift| drift.organization_id.as_deref() == Some("org_2"));
        assert_eq!((event.organizations, event.drifts, event.new_drifts), (7, 3, 1));
        let check =
            |check: &str, drifts, new_drifts| DriftedCheck { check: check.to_owned(), drifts, new_drifts };
        assert_eq!(event.checks, [check("invoice_number", 1, 0), check("wallet_posted", 2, 1)]);
    }
}
