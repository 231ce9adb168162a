//! What a project may be.

use crate::catalog::Catalog;
use crate::error::{Code, Error};
use crate::roles::Visibility;
use crate::rules::naming::Problem;

/// The default model must be in the catalog (decisions, section 8), and the default token limit within what it takes.
/// Returns the field at fault.
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

/// What is said of a model that the catalog lacks.
pub fn unknown_model(id: &str) -> Problem {
    Problem { code: "unknown_model", message: format!("There is no model `{id}`; GET /v1/models lists all.") }
}

/// A public project needs an organization that allows them (decisions, section 3).
pub fn check_visibility(visibility: Visibility, allow_public_projects: bool) -> Result<(), Error> {
    if visibility == Visibility::Public && !allow_public_projects {
        return Err(Error::new(Code::PublicProjectsNotAllowed).param("visibility"));
    }
    Ok(())
}
