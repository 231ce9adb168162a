//! The bodies that create and change a budget.

use serde_json::{Value, json};

use crate::Api;
use billing::budgets::{Change, New, NewSubject, Scope};
use billing::rules::budgets::{MAX_PERCENT, MAX_THRESHOLDS, Period, Thresholds};
use input::fields::{Field, Fields, Location, Problems};
use input::json::Json;
use input::record;
use input::types::{Amount, Integer, Name, items, one_of};
use kernel::ids::{ApiKeyId, ProjectId};
use strum::VariantArray;

/// The scope of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ScopeWord(Scope);

impl Field for ScopeWord {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Scope::VARIANTS).map(Self)
    }
    fn schema() -> Value {
        let words: Vec<_> = Scope::VARIANTS.iter().map(|scope| scope.as_str()).collect();
        json!({"type": "string", "title": "BudgetScope", "enum": words, "examples": ["organization"]})
    }
}

/// The period of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeriodWord(Period);

impl Field for PeriodWord {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Period::VARIANTS).map(Self)
    }
    fn schema() -> Value {
        let words: Vec<_> = Period::VARIANTS.iter().map(|period| period.as_str()).collect();
        json!({"type": "string", "title": "BudgetPeriod", "enum": words, "examples": ["month"]})
    }
}

/// The thresholds of a budget, in percent of its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ThresholdList(Thresholds);

impl Field for ThresholdList {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let percents = items(value, at, problems, |item, at, problems| {
            Integer::<1, MAX_PERCENT>::read(item, at, problems).map(|percent| percent.0)
        })?;
        match Thresholds::new(percents) {
            Some(thresholds) => Some(Self(thresholds)),
            None => problems.add(
                at,
                "invalid_thresholds",
                format!(
                    "`{}` must be at most {MAX_THRESHOLDS} numbers, each more than the one before.",
                    at.path
                ),
            ),
        }
    }
    fn schema() -> Value {
        json!({
            "type": "array",
            "maxItems": MAX_THRESHOLDS,
            "items": {"type": "integer", "minimum": 1, "maximum": MAX_PERCENT},
            "examples": [Thresholds::default().percents()],
        })
    }
}

record! {
    /// A new budget.
    #[derive(Debug)]
    pub struct CreateBudget in Api {
        /// The name, of 1 to 100 characters.
        name: Name = required,
        /// The scope of the budget.
        scope: ScopeWord = required,
        /// The project, for the scope `project`.
        project_id: Option<ProjectId> = optional,
        /// The API key, for the scope `api_key`.
        api_key_id: Option<ApiKeyId> = optional,
        /// The period of the limit, in UTC.
        period: PeriodWord = required,
        limit: Amount = required,
        /// `true` to reject calls that would exceed the limit.
        hard: bool = or(false),
        /// The percentages of the limit at which owners and admins are notified by e-mail.
        thresholds: ThresholdList = or(ThresholdList(Thresholds::default())),
    }
    check(fields) {
        if let (Some(ScopeWord(scope)), Some(project_id), Some(api_key_id)) = (scope, project_id, api_key_id) {
            check_id(fields, scope, (Scope::Project, "project_id"), project_id.is_some());
            check_id(fields, scope, (Scope::ApiKey, "api_key_id"), api_key_id.is_some());
        }
    }
}

/// Checks that an id is present only if the budget's scope requires it, and that a required id isn't missing.
fn check_id(fields: &mut Fields<'_, Api>, scope: Scope, (of, name): (Scope, &str), is_there: bool) {
    let word = scope.as_str();
    if scope == of && !is_there {
        fields.problem::<()>(
            name,
            "required",
            format!("`{name}` is required for a budget with the scope `{word}`."),
        );
    }
    if scope != of && is_there {
        let message = format!("A budget with the scope `{word}` has no `{name}`. Omit it.");
        fields.problem::<()>(name, "unexpected_subject", message);
    }
}

record! {
    /// A merge patch of a budget (RFC 7396).
    #[derive(Debug)]
    pub struct UpdateBudget in Api {
        /// The name, of 1 to 100 characters.
        name: Option<Name> = change,
        limit: Option<Amount> = change,
        /// `true` to reject calls that would exceed the limit.
        hard: Option<bool> = change,
        /// The percentages of the limit at which owners and admins are notified by e-mail.
        thresholds: Option<ThresholdList> = change,
    }
}

impl From<CreateBudget> for New {
    fn from(body: CreateBudget) -> Self {
        let subject = match (body.project_id, body.api_key_id) {
            (Some(id), _) => NewSubject::Project(id),
            (None, Some(id)) => NewSubject::ApiKey(id),
            (None, None) => NewSubject::Organization,
        };
        Self {
            name: body.name.into(),
            subject,
            period: body.period.0,
            limit: body.limit.0,
            hard: body.hard,
            thresholds: body.thresholds.0,
        }
    }
}

impl From<UpdateBudget> for Change {
    fn from(body: UpdateBudget) -> Self {
        Self {
            name: body.name.map(Into::into),
            limit: body.limit.map(|limit| limit.0),
            hard: body.hard,
            thresholds: body.thresholds.map(|thresholds| thresholds.0),
        }
    }
}
