//! Refused calls, which wait in memory to be written. A caller that repeats a refused call gets at most 60 rows
//! a minute for each error code; the others are counted in the last of these rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::clock::{MINUTE_MS, Time};
use kernel::ids::{CallerId, ModelCallId};

use crate::entries::NewCall;

/// Maximum number of rows of a caller and an error code per minute.
const ROWS_PER_MINUTE: u32 = 60;
/// Maximum number of rows that wait. While the database fails, further ones are lost.
const CAPACITY: usize = 10_000;

/// Refused calls that wait.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    minutes: HashMap<(CallerId, &'static str), Minute>,
    rows: Vec<Arc<NewCall>>,
    /// The number of further calls for the row of each of these calls.
    repeats: HashMap<ModelCallId, (Arc<NewCall>, i64)>,
}

/// The rows of a caller and an error code in a minute.
#[derive(Debug)]
struct Minute {
    minute: i64,
    rows: u32,
    last: Arc<NewCall>,
}

impl Refusals {
    pub(crate) fn note(&self, call: NewCall) {
        let minute = minute_of(call.time());
        let key = (call.caller, call.course.code.unwrap_or_default());
        let mut waiting = self.waiting();
        let Waiting { minutes, rows, repeats } = &mut *waiting;
        let is_full = rows.len() >= CAPACITY;
        match minutes.get_mut(&key) {
            Some(known) if is_full || known.minute == minute && known.rows >= ROWS_PER_MINUTE => {
                let last = &known.last;
                repeats.entry(last.id).or_insert_with(|| (Arc::clone(last), 0)).1 += 1;
            }
            None if is_full => {}
            known => {
                let call = Arc::new(call);
                rows.push(Arc::clone(&call));
                let before = known.filter(|known| known.minute == minute).map_or(0, |known| known.rows);
                minutes.insert(key, Minute { minute, rows: before + 1, last: call });
            }
        }
    }

    /// Takes the oldest rows, and all counts of calls whose rows aren't waiting. What isn't written is put
    /// back.
    pub(crate) fn take(&self, limit: usize, now: Time) -> TakenRefusals<'_> {
        let mut waiting = self.waiting();
        let count = limit.min(waiting.rows.len());
        let rows: Vec<_> = waiting.rows.drain(..count).collect();
        let mut repeats = HashMap::new();
        if waiting.rows.is_empty() {
            repeats = std::mem::take(&mut waiting.repeats);
            let minute = minute_of(now);
            waiting.minutes.retain(|_, known| known.minute >= minute);
        }
        TakenRefusals { refusals: self, rows, repeats }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic can't leave rows half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn minute_of(time: Time) -> i64 {
    time.unix_ms().div_euclid(MINUTE_MS)
}

/// Rows and counts that are put back if they can't be written or if the write is canceled.
pub(crate) struct TakenRefusals<'a> {
    refusals: &'a Refusals,
    rows: Vec<Arc<NewCall>>,
    repeats: HashMap<ModelCallId, (Arc<NewCall>, i64)>,
}

impl TakenRefusals<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.repeats.is_empty()
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &NewCall> {
        self.rows.iter().map(|call| &**call)
    }

    /// Returns the calls whose rows count further ones, and the numbers of these.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = (&NewCall, i64)> {
        self.repeats.values().map(|(call, count)| (&**call, *count))
    }

    /// Ends the write of these rows.
    pub(crate) fn done(mut self) {
        self.rows.clear();
        self.repeats.clear();
    }
}

impl Drop for TakenRefusals<'_> {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.refusals.waiting();
        waiting.rows.splice(..0, self.rows.drain(..));
        for (id, (call, count)) in self.repeats.drain() {
            waiting.repeats.entry(id).or_insert((call, 0)).1 += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::{Course, Ended, Operation, Usage};
    use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

    fn call(ms: i64, random: u128, code: &'static str) -> NewCall {
        let at = Time::from_unix_ms(1_800_000_000_000 + ms);
        let course = Course { code: Some(code), ..Course::reported(Operation::Chat, Ended::Refused) };
        NewCall {
            id: ModelCallId::from_parts(at, random),
            organization_id: OrganizationId::from_parts(at, 1),
            project_id: ProjectId::from_parts(at, 1),
            caller: CallerId::ApiKey(ApiKeyId::from_parts(Time::from_unix_ms(0), 1)),
            model: None,
            course,
            usage: Usage::default(),
            origin: None,
        }
    }

    #[test]
    fn sixty_rows_a_minute_are_kept() {
        let refusals = Refusals::default();
        for n in 0..100 {
            refusals.note(call(0, n, "rate_limited"));
        }
        refusals.note(call(0, 200, "model_not_found"));
        let now = Time::from_unix_ms(1_800_000_000_000);
        // Rows that aren't written are put back.
        drop(refusals.take(1_000, now));
        let taken = refusals.take(1_000, now);
        assert_eq!(taken.calls().count(), 61);
        let repeats: Vec<_> = taken.repeats().map(|(call, count)| (call.id, count)).collect();
        assert_eq!(repeats, [(call(0, 59, "rate_limited").id, 40)]);
        taken.done();
        // Later calls of the minute count for a row that is already written.
        refusals.note(call(1, 300, "rate_limited"));
        let taken = refusals.take(1_000, now);
        let repeats: Vec<_> = taken.repeats().map(|(call, count)| (call.id, count)).collect();
        assert_eq!((taken.calls().count(), repeats), (0, vec![(call(0, 59, "rate_limited").id, 1)]));
        taken.done();
        refusals.note(call(MINUTE_MS, 400, "rate_limited"));
        let taken = refusals.take(1_000, now);
        assert_eq!((taken.calls().count(), taken.repeats().count()), (1, 0));
    }

    #[test]
    fn counts_wait_for_their_rows() {
        let refusals = Refusals::default();
        for n in 0..70 {
            refusals.note(call(0, n, "rate_limited"));
        }
        let now = Time::from_unix_ms(1_800_000_000_000);
        let taken = refusals.take(50, now);
        assert_eq!((taken.calls().count(), taken.repeats().count()), (50, 0));
        taken.done();
        let taken = refusals.take(50, now);
        assert_eq!((taken.calls().count(), taken.repeats().count()), (10, 1));
    }
}
