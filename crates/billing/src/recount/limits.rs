//! The limits and credits that operators have set, according to the audit trail
//! (docs/contract/billing.md#spending-limits, #credits).

use kernel::money::Nano;
use serde_json::Value;

use super::evidence::{AdditionRow, WalletRow};
use super::{finding, nano};
use crate::rules::audit::{Drift, Invariant};

/// Returns an amount in the details of an entry of the audit trail.
fn amount(detail: Option<&str>, name: &str) -> Option<Nano> {
    let detail: Value = serde_json::from_str(detail?).ok()?;
    Nano::parse(detail.get(name)?.as_str()?)
}

/// Checks that each credit of an operator is in the audit trail, with its amount.
pub fn credits(credits: &[AdditionRow]) -> Vec<Drift> {
    let check = |credit: &AdditionRow| {
        let expected = match (&credit.actor, amount(credit.detail.as_deref(), "amount")) {
            (None, _) => "an entry `credit.added` in the audit trail".to_owned(),
            (Some(actor), Some(amount)) if amount.units() != i128::from(credit.amount_nano) => {
                format!("{amount}, as added by {actor}")
            }
            _ => return None,
        };
        Some(finding(Invariant::RecountCredit, &credit.id, expected, nano(credit.amount_nano.into())))
    };
    credits.iter().filter_map(check).collect()
}

/// Checks the credit limit of a wallet against the last recorded one. A limit that an operator has set with
/// an earlier version is only in the audit trail.
pub fn credit_limit(wallet: &WalletRow, recorded: Option<(i64, bool)>, entry: Option<&str>) -> Option<Drift> {
    let found = (wallet.credit_limit_nano, wallet.has_demo_credit);
    let set = amount(entry, "after").and_then(Nano::to_i64).map(|limit| (limit, false));
    let expected = recorded.or(set)?;
    if [recorded, set].contains(&Some(found)) {
        return None;
    }
    let words = |(limit, has_demo_credit): (i64, bool)| {
        let demo = if has_demo_credit { ", or that of the demo" } else { "" };
        format!("{}{demo}", nano(limit.into()))
    };
    let expected = format!("{}, the limit that was last set", words(expected));
    Some(finding(Invariant::RecountCreditLimit, "credit limit", expected, words(found)))
}
