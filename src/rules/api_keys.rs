//! What an API key may be.

use crate::catalog::Catalog;
use crate::clock::Time;
use crate::rules::naming::Problem;
use crate::rules::projects::unknown_model;

/// A key can't end before it begins (decisions, section 4).
pub fn check_expiry(expires_at: Time, now: Time) -> Result<(), Problem> {
    if expires_at > now {
        return Ok(());
    }
    Err(Problem {
        code: "in_the_past",
        message: "`expires_at` must be in the future; null means never.".into(),
    })
}

/// A key can be restricted only to models of the catalog: every unknown one is named, with its place in the list.
pub fn unknown_models(catalog: &Catalog, models: &[String]) -> Vec<(usize, Problem)> {
    let unknown = models.iter().enumerate().filter(|(_, id)| catalog.get(id).is_none());
    unknown.map(|(index, id)| (index, unknown_model(id))).collect()
}
