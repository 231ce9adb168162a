//! Rows of the call log, written with the charges of their calls.

use std::sync::Arc;

use super::counted::CountedEvent;
use super::operations::Batch;
use crate::Billing;
use crate::rules::events::GATEWAY_SOURCE;
use crate::store::usage::recording::RatedEvent;
use call_log::Written;
use call_log::entries::{Adjustment, Course, Ended, NewCall, Operation, Origin, Usage};
use catalog::{Component, Kind};
use db::Tx;
use kernel::ids::ModelCallId;
use kernel::secrets::sha256;

/// Logs the calls of new events, and the failed calls whose reservations were released. Later charges and
/// corrections change the row of their call.
pub(super) async fn write(
    billing: &Billing,
    tx: &mut Tx,
    counted: &[CountedEvent<'_>],
    batch: &Batch<'_>,
    released: &[bool],
) -> Result<Written, db::Error> {
    if !billing.call_log.is_on() {
        return Ok(Written::default());
    }
    let (mut charged, mut adjustments) = (Vec::with_capacity(counted.len()), Vec::new());
    for CountedEvent { event, course, .. } in counted {
        match of_event(event, *course) {
            Logged::Call(call) => charged.push(*call),
            Logged::Adjustment(adjustment) => adjustments.push(*adjustment),
        }
    }
    let ended = batch.releases.iter().zip(released).filter(|(_, existed)| **existed);
    let failed = ended.filter_map(|(release, _)| release.call.as_deref());
    let calls: Vec<&NewCall> = charged.iter().chain(failed).collect();
    billing.call_log.write(tx, &calls, &adjustments).await
}

/// The effect of a usage event on the log.
enum Logged {
    Call(Box<NewCall>),
    /// A later charge of a call, or a correction.
    Adjustment(Box<Adjustment>),
}

/// Returns the effect of an event on the log.
fn of_event(event: &RatedEvent, course: Option<&Course>) -> Logged {
    let usage = Usage {
        events: i64::from(event.corrects.is_none()),
        prompt_tokens: event.prompt_tokens,
        cached_prompt_tokens: event.cached_prompt_tokens,
        completion_tokens: event.completion_tokens,
        reasoning_tokens: Some(event.parts.to_parts().get(Component::Reasoning))
            .filter(|tokens| *tokens != 0),
        is_estimated: event.is_estimated,
        amount: event.amount,
    };
    let (id, is_whole) = call_id(event);
    let (organization_id, project_id) = (event.payer.organization_id, event.payer.project_id);
    let (caller, model) = (event.caller, Arc::clone(&event.model));
    if !is_whole {
        let adjustment = Adjustment { id, organization_id, project_id, caller, model, usage };
        return Logged::Adjustment(Box::new(adjustment));
    }
    let is_ours = *event.source == *GATEWAY_SOURCE;
    let course = course.cloned().unwrap_or_else(|| {
        let operation = match event.kind {
            Kind::Chat => Operation::Chat,
            Kind::Embeddings => Operation::Embeddings,
        };
        // A call of the gateway that another one charges was interrupted.
        let ended = if is_ours { Ended::Cut } else { Ended::Completed };
        Course::reported(operation, ended)
    });
    let origin = (!is_ours)
        .then(|| Origin { source: Arc::clone(&event.source), event_id: Arc::clone(&event.event_id) });
    let model = Some(model);
    Logged::Call(Box::new(NewCall { id, organization_id, project_id, caller, model, course, usage, origin }))
}

/// Returns the id of an event's call in the log, and `true` if the event is the first charge of the call.
///
/// It is the id of the call of the gateway. Calls that other servers report get an id that follows from their
/// event.
fn call_id(event: &RatedEvent) -> (ModelCallId, bool) {
    let first = event.corrects.as_deref().unwrap_or(&event.event_id);
    let is_correction = event.corrects.is_some();
    if *event.source == *GATEWAY_SOURCE {
        let (call, rest) = first.split_once('.').map_or((first, None), |(call, rest)| (call, Some(rest)));
        if let Some(id) = ModelCallId::parse(call) {
            return (id, rest.is_none() && !is_correction);
        }
    }
    let organization = event.payer.organization_id.short_text();
    let text = format!("{}|{}|{first}", organization.as_str(), event.source);
    let hash = sha256(text.as_bytes());
    let random = hash.first_chunk::<16>().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    (ModelCallId::from_parts(event.occurred_at, random), !is_correction)
}
