//! Rules for the expiry and the models of API keys.

use catalog::Catalog;
use kernel::clock::Time;
use kernel::naming::Problem;
pub use tenants::rules::key_bounds::Bounds;
use tenants::rules::projects::unknown_model;

/// Checks that a key expires in the future (docs/contract/api-keys.md#expiry).
pub fn check_expiry(expires_at: Time, now: Time) -> Result<(), Problem> {
    if expires_at > now {
        return Ok(());
    }
    Err(Problem {
        code: "in_the_past",
        message: "`expires_at` must be in the future; null means never.".into(),
    })
}

/// Returns the models that the catalog lacks, each with its index in the list. A key can be restricted only
/// to models of the catalog.
pub fn unknown_models(catalog: &Catalog, models: &[String]) -> Vec<(usize, Problem)> {
    let unknown = models.iter().enumerate().filter(|(_, id)| catalog.get(id).is_none());
    unknown.map(|(index, id)| (index, unknown_model(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_expires_in_the_future() {
        let now = Time::from_unix_ms(1_000);
        let code = |ms| check_expiry(now.plus_ms(ms), now).map_err(|problem| problem.code);
        assert_eq!([code(1), code(0), code(-1)], [Ok(()), Err("in_the_past"), Err("in_the_past")]);
    }

    #[test]
    fn every_unknown_model_is_named_with_its_index() {
        let catalog = Catalog::built_in().unwrap();
        let models = ["svc-9", "svc-1", "SVC-1"].map(str::to_owned);
        let unknown = unknown_models(&catalog, &models);
        let unknown: Vec<_> = unknown.into_iter().map(|(index, problem)| (index, problem.code)).collect();
        assert_eq!(unknown, [(0, "unknown_model"), (2, "unknown_model")]);
    }
}
