//! The rule for a project's settings.

use catalog::Catalog;
use kernel::naming::Problem;

/// Checks that the default model is in the catalog, and that the default token limit doesn't exceed the
/// model's limit (docs/contract/projects.md#settings).
///
/// # Errors
/// The invalid field, and the problem.
pub fn check_settings(
    catalog: &Catalog,
    model: Option<&str>,
    max_tokens: Option<i64>,
) -> Result<(), (&'static str, Problem)> {
    let Some(id) = model else {
        return Ok(());
    };
    let Some(model) = catalog.get(id) else {
        return Err(("model", unknown_model(id)));
    };
    match max_tokens {
        Some(tokens) if tokens > model.max_tokens => {
            let message = format!("`max_tokens` may be at most {} for the model `{id}`.", model.max_tokens);
            Err(("max_tokens", Problem { code: "out_of_range", message }))
        }
        _ => Ok(()),
    }
}

/// Returns the problem of a model that is missing from the catalog.
pub fn unknown_model(id: &str) -> Problem {
    Problem { code: "unknown_model", message: format!("Unknown model `{id}`; GET /v1/models lists all.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_model_bounds_the_default_limit() {
        let catalog = Catalog::built_in().unwrap();
        for (model, tokens, expected) in [
            (None, None, "ok"),
            (None, Some(1_000_000_000), "ok"),
            (Some("svc-1"), None, "ok"),
            (Some("svc-1"), Some(1), "ok"),
            (Some("svc-1"), Some(4096), "ok"),
            (Some("svc-1"), Some(4097), "max_tokens out_of_range"),
            (Some("svc-9"), None, "model unknown_model"),
            (Some("svc-9"), Some(4097), "model unknown_model"),
        ] {
            let found = check_settings(&catalog, model, tokens);
            let found =
                found.map_or_else(|(field, problem)| format!("{field} {}", problem.code), |()| "ok".into());
            assert_eq!(found, expected, "{model:?} {tokens:?}");
        }
    }
}
