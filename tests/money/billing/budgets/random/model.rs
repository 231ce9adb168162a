//! The model: lists of keys, usage, reservations and budgets. Each sum is added up when it is needed.

use std::collections::{BTreeMap, BTreeSet};

use tollkeeper::clock::{Day, Time};

/// The prices in the catalog, in pico per token.
const PROMPT: i128 = 2_000_001;
const COMPLETION: i128 = 6_000_333;
pub const PICO_PER_NANO: i128 = 1_000;

/// Returns the price of tokens in pico.
pub fn price(prompt: i64, completion: i64) -> i128 {
    i128::from(prompt) * PROMPT + i128::from(completion) * COMPLETION
}

/// A key, with its organization and project.
#[derive(Clone, Debug)]
pub struct Key {
    pub id: String,
    pub secret: String,
    pub organization: usize,
    /// The index of the project among the projects of both organizations.
    pub project: usize,
}

/// Accepted usage, or a correction of it with tokens of 0 or less.
#[derive(Clone, Debug)]
pub struct Usage {
    pub id: String,
    pub key: usize,
    pub day: Day,
    pub prompt: i64,
    pub completion: i64,
    pub corrects: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Reservation {
    pub key: usize,
    pub nano: i128,
    pub until_ms: i64,
}

/// The scope of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Organization,
    /// A project, by its index among all projects.
    Project(usize),
    /// A key, by its index among all keys.
    Key(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    Day,
    Month,
    Total,
}

impl Period {
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// Returns the first day of the period that contains a day. For all time, that is the first day of all.
    pub fn start(self, day: Day) -> Day {
        match self {
            Self::Day => day,
            Self::Month => Day::parse(&format!("{}-01", &day.to_string()[..7])).unwrap(),
            Self::Total => Day::from_unix_days(0),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Budget {
    pub id: String,
    pub name: String,
    pub organization: usize,
    pub scope: Scope,
    pub period: Period,
    pub limit_nano: i128,
    pub hard: bool,
    pub thresholds: Vec<i64>,
    /// The period in which the budget was created.
    pub first_period: Day,
    /// The thresholds that were reached, each with its period.
    pub reached: BTreeSet<(Day, i64)>,
}

/// Everything that was accepted.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub keys: Vec<Key>,
    pub usage: Vec<Usage>,
    pub reservations: BTreeMap<String, Reservation>,
    pub budgets: Vec<Budget>,
    /// Budgets and periods with thresholds that no e-mail has announced yet.
    pub untold: BTreeSet<(String, Day)>,
}

impl Model {
    pub fn covers(&self, budget: &Budget, key: usize) -> bool {
        let of = &self.keys[key];
        of.organization == budget.organization
            && match budget.scope {
                Scope::Organization => true,
                Scope::Project(project) => of.project == project,
                Scope::Key(one) => one == key,
            }
    }

    /// Returns the list price of the usage of a period, in pico.
    pub fn spent(&self, budget: &Budget, period: Day) -> i128 {
        let counted = self
            .usage
            .iter()
            .filter(|usage| self.covers(budget, usage.key) && budget.period.start(usage.day) == period);
        counted.map(|usage| price(usage.prompt, usage.completion)).sum()
    }

    /// Returns the reserved amount, in nano.
    pub fn reserved(&self, budget: &Budget) -> i128 {
        let held = self.reservations.values().filter(|held| self.covers(budget, held.key));
        held.map(|held| held.nano).sum()
    }

    /// Returns the hard budgets that don't allow another call of a key: the amounts spent and reserved and
    /// the call's price exceed the limit.
    pub fn refusing(&self, key: usize, nano: i128, today: Day) -> Vec<&Budget> {
        let is_passed = |budget: &&Budget| {
            let spent = self.spent(budget, budget.period.start(today));
            spent + (self.reserved(budget) + nano) * PICO_PER_NANO > budget.limit_nano * PICO_PER_NANO
        };
        let asked = self.budgets.iter().filter(|budget| budget.hard && self.covers(budget, key));
        asked.filter(is_passed).collect()
    }

    /// Records the thresholds that are reached in the current periods. Returns the number of new ones.
    pub fn reach(&mut self, today: Day) -> usize {
        let mut new = Vec::new();
        for (place, budget) in self.budgets.iter().enumerate() {
            let period = budget.period.start(today);
            let spent = self.spent(budget, period);
            let is_reached =
                |percent: &&i64| spent * 100 >= budget.limit_nano * PICO_PER_NANO * i128::from(**percent);
            let reached = budget.thresholds.iter().filter(is_reached);
            new.extend(reached.map(|percent| (place, period, *percent)));
        }
        let mut count = 0;
        for (place, period, percent) in new {
            let budget = &mut self.budgets[place];
            if budget.reached.insert((period, percent)) {
                self.untold.insert((budget.id.clone(), period));
                count += 1;
            }
        }
        count
    }

    /// Returns the prompt and completion tokens of an event that no correction has taken back.
    pub fn left(&self, id: &str) -> (i64, i64) {
        let parts = self.usage.iter().filter(|usage| usage.id == id || usage.corrects.as_deref() == Some(id));
        parts.fold((0, 0), |left, usage| (left.0 + usage.prompt, left.1 + usage.completion))
    }

    /// Removes the expired reservations. Returns their number.
    pub fn expire(&mut self, now: Time) -> usize {
        let before = self.reservations.len();
        self.reservations.retain(|_, held| held.until_ms > now.unix_ms());
        before - self.reservations.len()
    }
}
