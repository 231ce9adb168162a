//! Checks of budgets against daily rows and reservations.

use std::collections::BTreeMap;

use super::{DailyKey, Drift, Invariant, compare, decimal_text};
use crate::rules::budgets::Period;
use kernel::clock::{Day, Time};
use kernel::money::{Nano, Pico};

/// A stored budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetRow {
    pub id: String,
    /// The id of the organization, project or API key.
    pub subject_id: String,
    pub period: Period,
    pub reserved: Nano,
    pub created_at: Time,
}

/// The sum of the live reservations of a caller in a project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedRow {
    pub project_id: String,
    /// The caller, an API key or a user.
    pub api_key_id: Option<String>,
    pub amount: Nano,
}

/// The budgets of an organization, with the sums that they should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budgets {
    organization_id: String,
    budgets: Vec<Expected>,
    by_subject: BTreeMap<String, Vec<usize>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Expected {
    row: BudgetRow,
    /// In pico, by the first day of the period.
    spent: BTreeMap<Day, i128>,
    /// In nano.
    reserved: i128,
}

impl Budgets {
    pub fn new(organization_id: &str, rows: Vec<BudgetRow>) -> Self {
        let mut by_subject: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            by_subject.entry(row.subject_id.clone()).or_default().push(index);
        }
        let budgets = rows.into_iter().map(|row| Expected { row, spent: BTreeMap::new(), reserved: 0 });
        Self { organization_id: organization_id.to_owned(), budgets: budgets.collect(), by_subject }
    }

    /// Calls a function for each budget that counts the usage of a caller.
    fn each(&mut self, project_id: &str, api_key_id: Option<&str>, mut call: impl FnMut(&mut Expected)) {
        let subjects = [Some(&*self.organization_id), Some(project_id), api_key_id];
        let found = subjects.into_iter().flatten().filter_map(|subject| self.by_subject.get(subject));
        for index in found.flatten() {
            self.budgets.get_mut(*index).into_iter().for_each(&mut call);
        }
    }

    /// Adds a daily row.
    pub fn usage(&mut self, key: &DailyKey, amount: Pico) {
        self.each(&key.project_id, Some(&key.api_key_id), |budget| {
            let start = budget.row.period.start(key.day);
            if start >= budget.row.period.start(budget.row.created_at.day()) {
                let spent = budget.spent.entry(start).or_default();
                *spent = spent.saturating_add(amount.units());
            }
        });
    }

    /// Adds reservations.
    pub fn reservation(&mut self, row: &ReservedRow) {
        self.each(&row.project_id, row.api_key_id.as_deref(), |budget| {
            budget.reserved = budget.reserved.saturating_add(row.amount.units());
        });
    }

    /// Returns the ids of the budgets.
    pub fn ids(&self) -> Vec<String> {
        self.budgets.iter().map(|budget| budget.row.id.clone()).collect()
    }

    /// Compares the stored use of a budget in each period that has a row.
    pub fn spent(&self, budget_id: &str, stored: &[(Day, Pico)]) -> Vec<Drift> {
        let Some(budget) = self.budgets.iter().find(|budget| budget.row.id == budget_id) else {
            return Vec::new();
        };
        let stored: BTreeMap<Day, i128> =
            stored.iter().map(|(start, spent)| (*start, spent.units())).collect();
        let mut starts: Vec<Day> = budget.spent.keys().chain(stored.keys()).copied().collect();
        starts.sort_unstable();
        starts.dedup();
        let text = |sums: &BTreeMap<Day, i128>, start| {
            decimal_text::<12>(Some(sums.get(&start).copied().unwrap_or_default()))
        };
        let compared = starts.into_iter().filter_map(|start| {
            let subject = format!("{budget_id} {}", budget.row.period.label(start));
            compare(Invariant::BudgetSpent, &subject, text(&budget.spent, start), text(&stored, start))
        });
        compared.collect()
    }

    /// Compares the reserved amounts of the budgets, and the number of budgets with the number in the wallet.
    pub fn finish(&self, of_wallet: Option<i64>) -> Vec<Drift> {
        let reserved = self.budgets.iter().filter_map(|budget| {
            let (expected, row) = (decimal_text::<9>(Some(budget.reserved)), &budget.row);
            compare(Invariant::BudgetReserved, &row.id, expected, row.reserved)
        });
        let counted = of_wallet
            .and_then(|of_wallet| compare(Invariant::BudgetCount, "wallet", self.budgets.len(), of_wallet));
        reserved.chain(counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, subject_id: &str, period: Period, reserved: i128) -> BudgetRow {
        BudgetRow {
            id: id.into(),
            subject_id: subject_id.into(),
            period,
            reserved: Nano::from_units(reserved),
            created_at: Time::parse("2026-01-31T23:00:00Z").unwrap(),
        }
    }

    fn used(budgets: &mut Budgets, day: &str, project_id: &str, api_key_id: &str, pico: i128) {
        let key = DailyKey {
            project_id: project_id.into(),
            day: Day::parse(day).unwrap(),
            api_key_id: api_key_id.into(),
            model: "m".into(),
            price_version: 0,
            kind: "chat".into(),
        };
        budgets.usage(&key, Pico::from_units(pico));
    }

    fn words(drifts: &[Drift]) -> Vec<String> {
        drifts.iter().map(|d| format!("{} {} {} {}", d.invariant, d.subject, d.expected, d.found)).collect()
    }

    #[test]
    fn budget_is_the_sum_of_its_daily_rows() {
        let rows = vec![
            row("b_org", "org_1", Period::Month, 0),
            row("b_key", "key_1", Period::Day, 0),
            row("b_total", "proj_2", Period::Total, 0),
        ];
        let mut budgets = Budgets::new("org_1", rows);
        used(&mut budgets, "2026-01-30", "proj_1", "key_1", 1_000);
        used(&mut budgets, "2026-01-31", "proj_1", "key_1", 2_000);
        used(&mut budgets, "2025-12-31", "proj_2", "key_2", 4_000);
        used(&mut budgets, "2026-02-01", "proj_2", "user_1", 8_000);
        let day = |text| Day::parse(text).unwrap();
        let pico = Pico::from_units;
        let months = [(day("2026-01-01"), pico(3_000)), (day("2026-02-01"), pico(8_000))];
        assert_eq!(budgets.spent("b_org", &months), []);
        // The day before the budget was created isn't counted.
        assert_eq!(budgets.spent("b_key", &[(day("2026-01-31"), pico(2_000))]), []);
        assert_eq!(budgets.spent("b_total", &[(Day::from_unix_days(0), pico(12_000))]), []);
        let drifts = budgets.spent("b_key", &[(day("2026-01-30"), pico(1))]);
        let expected =
            ["budget_spent b_key 2026-01-30 0 0.000000000001", "budget_spent b_key 2026-01-31 0.000000002 0"];
        assert_eq!(words(&drifts), expected);
    }

    #[test]
    fn reserved_is_the_sum_of_reservations() {
        let rows = vec![row("b_org", "org_1", Period::Total, 7), row("b_key", "key_1", Period::Day, 3)];
        let mut budgets = Budgets::new("org_1", rows);
        let reservation = |api_key_id: Option<&str>, nano| ReservedRow {
            project_id: "proj_1".into(),
            api_key_id: api_key_id.map(Into::into),
            amount: Nano::from_units(nano),
        };
        budgets.reservation(&reservation(Some("key_1"), 3));
        budgets.reservation(&reservation(None, 4));
        assert_eq!(budgets.finish(Some(2)), []);
        budgets.reservation(&reservation(Some("key_1"), 1));
        let expected = [
            "budget_reserved b_org 0.000000008 0.000000007",
            "budget_reserved b_key 0.000000004 0.000000003",
            "budget_count wallet 2 3",
        ];
        assert_eq!(words(&budgets.finish(Some(3))), expected);
    }
}
