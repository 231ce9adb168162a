//! Corrections of recorded events.

use std::collections::BTreeSet;

use super::counted::{self as recorded, CountedEvent, Verdict};
use super::operations::UsageEvent;
use crate::Billing;
use catalog::Price;
use db::Tx;
use kernel::clock::Time;

use crate::rules::events::{self, Refusal};
use crate::rules::rating::{self, PricedTokens, Tokens};
use crate::store::usage::recording::{self, CorrectionSums, InsertReport, NewEvent, RatedEvent, StoredEvent};

/// Records the corrections among these events in the order of their arrival, and returns a verdict for each,
/// in the given order. Corrections are rare, so each is looked up separately. Tokens that one correction
/// takes back aren't available to the next.
pub(super) async fn record<'a>(
    billing: &Billing,
    tx: &mut Tx,
    events: &[(usize, &'a UsageEvent)],
    now: Time,
) -> Result<Vec<Verdict<'a>>, db::Error> {
    let corrections = events.iter().filter_map(|(place, event)| {
        event.event.corrects.as_deref().map(|corrects| (*place, &event.event, corrects))
    });
    let mut in_order: Vec<_> = corrections.enumerate().collect();
    in_order.sort_unstable_by_key(|(_, (place, _, _))| *place);
    let mut verdicts = Vec::with_capacity(in_order.len());
    for (position, (_, event, corrects)) in in_order {
        verdicts.push((position, correct(billing, tx, event, corrects, now).await?));
    }
    verdicts.sort_unstable_by_key(|(position, _)| *position);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

async fn correct<'a>(
    billing: &Billing,
    tx: &mut Tx,
    event: &'a RatedEvent,
    corrects: &str,
    now: Time,
) -> Result<Verdict<'a>, db::Error> {
    // This check comes first: otherwise a correction that is already recorded would seem to take back too
    // much.
    if let Some(stored) = recording::stored(tx, event.key()).await? {
        return Ok(Verdict::Stored(stored.payload_hash));
    }
    let original_key = (event.payer.organization_id, &*event.source, corrects);
    let Some(original) = recording::stored(tx, original_key).await? else {
        return Ok(Verdict::Refused(events::unknown_event(corrects)));
    };
    let corrected = recording::sum_corrections(tx, original_key).await?;
    let price =
        catalog::activation::price(&billing.catalog, tx, &original.model, original.price_version).await?;
    let amount = match correction_amount(event, corrects, &original, corrected, price.as_ref()) {
        Ok(amount) => amount,
        Err(refusal) => return Ok(Verdict::Refused(refusal)),
    };
    let complete = RatedEvent {
        occurred_at: original.occurred_at,
        price_version: original.price_version,
        amount,
        ..event.clone()
    };
    let billed_month = recording::billed_month(tx, event.payer.organization_id, &original).await?;
    let new = NewEvent { event: &complete, billed_month };
    if recording::insert(tx, &[new], InsertReport::Rows, now).await? == Some(vec![true]) {
        return Ok(Verdict::New(recorded::FinalEvent::Completed(Box::new(complete)), billed_month));
    }
    // Another replica has recorded the correction in the meantime.
    let stored = recording::stored(tx, event.key()).await?;
    let stored =
        stored.ok_or_else(|| db::Error::Internal("a correction is neither new nor stored".to_owned()))?;
    Ok(Verdict::Stored(stored.payload_hash))
}

/// Returns the price of the quantities that a correction takes back, as a negative amount.
fn correction_amount(
    event: &RatedEvent,
    corrects: &str,
    original: &StoredEvent,
    corrected: CorrectionSums,
    price: Option<&Price>,
) -> Result<kernel::money::Pico, Refusal> {
    if original.is_correction {
        return Err(events::corrects_a_correction(corrects));
    }
    if (event.caller, event.payer.project_id) != (original.caller, original.project_id)
        || (&*event.model, event.kind.as_str()) != (&*original.model, &*original.kind)
    {
        return Err(events::correction_mismatch(corrects));
    }
    let tokens = original.tokens.checked_add(corrected.tokens).unwrap_or_default();
    let left = PricedTokens {
        tokens,
        amount: kernel::money::Pico::from_units(original.amount.units() + corrected.amount.units()),
    };
    if !tokens.checked_add(event.tokens()).is_some_and(Tokens::is_valid) {
        return Err(events::correction_too_large(tokens));
    }
    let counted = PricedTokens { tokens: original.tokens, amount: original.amount };
    rating::correction_amount(counted, left, event.tokens(), price)
        .ok_or_else(|| events::price_is_gone(corrects))
}

/// Returns `true` if the corrections of each event take back no more than its quantities. Other replicas may
/// have added corrections that weren't visible before the wallet was locked.
pub(super) async fn are_covered(tx: &mut Tx, counted: &[CountedEvent<'_>]) -> Result<bool, db::Error> {
    let corrected: BTreeSet<_> = counted
        .iter()
        .filter_map(|CountedEvent { event, .. }| {
            event.corrects.as_deref().map(|id| (event.payer.organization_id, &*event.source, id))
        })
        .collect();
    for key in corrected {
        let sum = recording::sum_corrections(tx, key).await?;
        let Some(original) = recording::stored(tx, key).await? else { return Ok(false) };
        if !original.tokens.checked_add(sum.tokens).is_some_and(Tokens::is_valid)
            || original.amount.units() + sum.amount.units() < 0
        {
            return Ok(false);
        }
    }
    Ok(true)
}
