//! The budgets of one transaction, under the locks of their organizations' wallets: read together, changed in
//! memory, written once.
//!
//! Usage counts in the period of its day. Reservations don't belong to a period. While a reservation exists,
//! it lowers the remaining amount of every budget of its organization, project and API key. Therefore a call
//! that begins in one period and is captured in the next can't exceed the limit of either.

use std::collections::{BTreeMap, BTreeSet};

use super::operations::{BudgetRefusal, ReserveError};
use crate::Billing;
use crate::rules::budgets::{self as rules, Spender, Subject};
use crate::store::budget_alerts::{self, ReachedThreshold};
use crate::store::budgets::{self, Budget, Use};
use crate::store::reservations::{NewReservation, ReservedAmount};
use db::Tx;
use events::data::BudgetReached;
use kernel::clock::{Day, Time};
use kernel::ids::{BudgetId, OrganizationId};
use kernel::money::{Nano, Pico};

/// Budgets whose wallets are locked.
pub(crate) struct LockedBudgets {
    now: Time,
    /// The organizations that have budgets.
    organizations: BTreeSet<OrganizationId>,
    loaded: BTreeSet<Subject>,
    budgets: BTreeMap<BudgetId, LockedBudget>,
    by_subject: BTreeMap<Subject, Vec<BudgetId>>,
}

struct LockedBudget {
    budget: Budget,
    reserved_changed: bool,
    /// By the first day of the period.
    uses: BTreeMap<Day, LockedUse>,
}

#[derive(Clone, Copy)]
struct LockedUse {
    used: Use,
    /// The amount spent before this transaction.
    spent_before: Pico,
    changed: bool,
}

impl From<Use> for LockedUse {
    fn from(used: Use) -> Self {
        Self { used, spent_before: used.spent, changed: false }
    }
}

impl LockedBudgets {
    /// Creates the set of budgets of these organizations. No budget is loaded yet.
    pub(crate) fn new(organizations: BTreeSet<OrganizationId>, now: Time) -> Self {
        Self {
            now,
            organizations,
            loaded: BTreeSet::new(),
            budgets: BTreeMap::new(),
            by_subject: BTreeMap::new(),
        }
    }

    /// Loads the budgets of these callers, projects and organizations, unless they were already loaded.
    pub(crate) async fn load(
        &mut self,
        tx: &mut Tx,
        spenders: impl IntoIterator<Item = Spender>,
    ) -> Result<(), db::Error> {
        if self.organizations.is_empty() {
            return Ok(());
        }
        let with_budgets =
            spenders.into_iter().filter(|spender| self.organizations.contains(&spender.organization_id));
        let subjects: BTreeSet<Subject> = with_budgets.flat_map(Spender::subjects).collect();
        let new: Vec<Subject> = subjects.difference(&self.loaded).copied().collect();
        let today = self.now.day();
        for found in budgets::of_subjects(tx, &new, today).await? {
            let budget = found.budget;
            self.by_subject.entry(budget.subject).or_default().push(budget.id);
            let uses = BTreeMap::from([(budget.period.start(today), found.used.into())]);
            self.budgets.insert(budget.id, LockedBudget { budget, reserved_changed: false, uses });
        }
        self.loaded.extend(new);
        Ok(())
    }

    /// Returns the ids of the budgets that count this caller's usage.
    fn ids(&self, spender: Spender) -> Vec<BudgetId> {
        if self.budgets.is_empty() {
            return Vec::new();
        }
        spender.subjects().filter_map(|subject| self.by_subject.get(&subject)).flatten().copied().collect()
    }

    fn get(&mut self, id: BudgetId) -> Result<&mut LockedBudget, db::Error> {
        self.budgets.get_mut(&id).ok_or_else(|| db::Error::Internal(format!("{id} isn't loaded")))
    }

    /// Frees the money of an ended reservation. Its budgets must be loaded.
    pub(crate) fn free(&mut self, reserved: &ReservedAmount) -> Result<(), db::Error> {
        for id in self.ids(reserved.into()) {
            self.get(id)?.add_reserved(-reserved.amount.units());
        }
        Ok(())
    }

    /// Counts the usage of a day. The budgets must be loaded. The amount is negative for corrections.
    pub(crate) async fn spend(
        &mut self,
        tx: &mut Tx,
        spender: Spender,
        day: Day,
        amount: Pico,
    ) -> Result<(), db::Error> {
        for id in self.ids(spender) {
            let locked = self.get(id)?;
            let start = locked.budget.period.start(day);
            // Periods before the budget's first one aren't counted, because their usage precedes its
            // creation.
            if start < locked.budget.first_period() || amount == Pico::ZERO {
                continue;
            }
            let used = locked.period(tx, start).await?;
            used.used.spent = Pico::from_units(used.used.spent.units() + amount.units());
            used.changed = true;
        }
        Ok(())
    }

    /// Checks a call against its hard budgets, which must be loaded, and changes nothing. Returns the lowest
    /// remaining amount after the reservation, `None` without a hard budget, or the refusal of a budget that
    /// doesn't cover the call.
    pub(crate) async fn check(
        &mut self,
        tx: &mut Tx,
        new: &NewReservation,
    ) -> Result<Result<Option<Nano>, ReserveError>, db::Error> {
        let (today, mut least) = (self.now.day(), None);
        for id in self.ids(new.into()) {
            let locked = self.get(id)?;
            if !locked.budget.hard {
                continue;
            }
            // The usage of a call that began just before the end of a period counts in that period.
            let days = BTreeSet::from([new.began_at.day(), today]);
            for start in days.into_iter().map(|day| locked.budget.period.start(day)).collect::<BTreeSet<_>>()
            {
                let spent = locked.period(tx, start).await?.used.spent;
                let Budget { limit, reserved, period, name, .. } = &locked.budget;
                let left = rules::left(*limit, spent, *reserved).floor_nano();
                if !rules::covers(*limit, spent, *reserved, new.amount) {
                    let (name, period) = (name.clone(), period.label(start));
                    return Ok(Err(ReserveError::Budget(BudgetRefusal {
                        name,
                        period,
                        limit: *limit,
                        left,
                    })));
                }
                let after = Nano::from_units(left.units() - new.amount.units());
                least = Some(least.map_or(after, |least: Nano| least.min(after)));
            }
        }
        Ok(Ok(least))
    }

    /// Reserves the amount of a call. Its budgets must be loaded.
    pub(crate) fn reserve(&mut self, new: &NewReservation) -> Result<(), db::Error> {
        for id in self.ids(new.into()) {
            self.get(id)?.add_reserved(new.amount.units());
        }
        Ok(())
    }

    /// Writes the changes, and records the thresholds that were reached in the current periods.
    pub(crate) async fn write(&self, billing: &Billing, tx: &mut Tx) -> Result<(), db::Error> {
        // Usage is booked in this currency only.
        let currency = billing.settings.currency.as_str();
        for (id, locked) in &self.budgets {
            if locked.reserved_changed {
                budgets::set_reserved(tx, *id, locked.budget.reserved).await?;
            }
            let changed = locked.uses.iter().filter(|(_, locked)| locked.changed);
            for (start, LockedUse { used, spent_before, .. }) in changed {
                let (budget, period_start, used) = (&locked.budget, *start, *used);
                budgets::set_spent(tx, *id, period_start, used.spent).await?;
                let was_used_up = rules::is_used_up(*spent_before, budget.limit);
                let progress = Progress { budget, currency, period_start, used, was_used_up };
                progress.record(billing, tx, self.now).await?;
            }
        }
        Ok(())
    }
}

impl LockedBudget {
    fn add_reserved(&mut self, nano: i128) {
        self.budget.reserved = Nano::from_units(self.budget.reserved.units() + nano);
        self.reserved_changed = true;
    }

    /// Returns the use in the period that begins on this day.
    async fn period(&mut self, tx: &mut Tx, start: Day) -> Result<&mut LockedUse, db::Error> {
        if !self.uses.contains_key(&start) {
            let used = budgets::used(tx, self.budget.id, start).await?;
            self.uses.insert(start, used.into());
        }
        self.uses.get_mut(&start).ok_or_else(|| db::Error::Internal("a period isn't loaded".to_owned()))
    }
}

/// The use of a budget in a period after a change of its use or its limit.
pub(crate) struct Progress<'a> {
    pub(crate) budget: &'a Budget,
    /// ISO 4217 code.
    pub(crate) currency: &'a str,
    /// The first day of the period.
    pub(crate) period_start: Day,
    pub(crate) used: Use,
    /// `true` if the limit was used up before the change.
    pub(crate) was_used_up: bool,
}

impl Progress<'_> {
    /// Records the thresholds that the budget has reached, and notifies webhooks of them and of the limit if
    /// the period is the current one.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) async fn record(&self, billing: &Billing, tx: &mut Tx, now: Time) -> Result<(), db::Error> {
        let Self { budget, period_start, used, .. } = *self;
        if period_start != budget.period.start(now.day()) {
            return Ok(());
        }
        let Use { spent, highest_threshold } = used;
        for threshold in budget.thresholds.reached(spent, budget.limit, highest_threshold) {
            let (budget_id, limit) = (budget.id, budget.limit);
            let reached = ReachedThreshold { budget_id, period_start, threshold, limit, spent };
            budget_alerts::insert(tx, &reached, now).await?;
            self.emit(billing, tx, Some(threshold), now).await?;
        }
        if !self.was_used_up && rules::is_used_up(spent, budget.limit) {
            self.emit(billing, tx, None, now).await?;
        }
        Ok(())
    }

    async fn emit(
        &self,
        billing: &Billing,
        tx: &mut Tx,
        threshold: Option<i64>,
        now: Time,
    ) -> Result<(), db::Error> {
        let Self { budget, currency, period_start, used, .. } = *self;
        let has_end = budget.period.end(period_start).is_some();
        let reached = BudgetReached {
            organization_id: budget.organization_id,
            budget_id: budget.id,
            period_start: has_end.then(|| period_start.start()),
            threshold,
            currency: currency.to_owned(),
            limit: budget.limit,
            spent: used.spent,
        };
        events::emit(tx, &reached, now, &billing.random).await
    }
}
