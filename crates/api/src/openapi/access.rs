//! `x-access` of the OpenAPI document: the callers and roles that an operation admits.

use serde_json::{Value, json};

use crate::paths::is_model_call;
use crate::row::Route;
use kernel::error::Code;

/// Returns the callers that may use the operation, as a sentence, with the required roles if any. Project
/// roles are the effective ones (docs/contract/access.md#effective-roles).
pub fn of(route: &Route) -> Value {
    let access = &route.access;
    let Some((place, roles)) = &access.roles else {
        let callers = match access.scheme {
            None => "Anyone. No credential is required.".to_owned(),
            Some(_) => sentence(&access.text),
        };
        return json!({"callers": callers, "place": null, "roles": []});
    };
    if is_model_call(route.path) {
        // Only users need a role.
        return json!({"callers": sentence(&access.text), "place": place, "roles": roles});
    }
    let key = if access.codes.contains(&Code::ManagementNotAllowed) {
        "an API key without limits on models and tokens"
    } else {
        "an API key"
    };
    let article = if *place == "organization" { "the organization" } else { "the project" };
    // The text after the comma is an exception.
    let rest = access.text.split_once(", ").map(|(_, rest)| format!("; {rest}")).unwrap_or_default();
    let callers =
        format!("Access token, or {key}, of a user with the role {} in {article}{rest}.", any_of(roles));
    json!({"callers": callers, "place": place, "roles": roles})
}

fn any_of(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        words => words.concat(),
    }
}

/// Returns the text with a capital first letter and a final period.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}
