//! Errors in the form in which Stripe answers them.

use serde_json::{Value, json};

/// An error answer.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: u16,
    /// The object `error`.
    pub error: Value,
    /// Whether the operation had started. In this case the answer is kept for its idempotency key.
    pub is_kept: bool,
}

impl Problem {
    fn new(status: u16, kind: &str, code: &str, message: &str) -> Self {
        let mut error = json!({"type": kind, "message": message});
        if !code.is_empty() {
            error["code"] = code.into();
            error["doc_url"] =
                format!("https://stripe.com/docs/error-codes/{}", code.replace('_', "-")).into();
        }
        Self { status, error, is_kept: false }
    }

    /// Returns the error for a field that isn't accepted.
    pub fn invalid(param: &str, code: &str, message: &str) -> Self {
        let mut problem = Self::new(400, "invalid_request_error", code, message);
        problem.error["param"] = param.into();
        problem
    }

    /// Returns the error for an object that doesn't exist. The status is 404 if the path names the object,
    /// and 400 if a field does.
    pub fn missing(kind: &str, id: &str, param: Option<&str>) -> Self {
        let message = format!("No such {kind}: '{id}'");
        let status = if param.is_some() { 400 } else { 404 };
        let mut problem = Self::new(status, "invalid_request_error", "resource_missing", &message);
        problem.error["param"] = param.unwrap_or("id").into();
        problem
    }

    /// Returns the error for an operation that the state of an object forbids.
    pub fn state(code: &str, message: &str) -> Self {
        Self { is_kept: true, ..Self::new(400, "invalid_request_error", code, message) }
    }

    /// Returns the error for a card that was declined.
    pub fn card(error: Value) -> Self {
        Self { status: 402, error, is_kept: true }
    }

    pub fn unauthorized(key: &str) -> Self {
        let last: String = key.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
        let message = format!("Invalid API Key provided: sk_test_****{last}");
        Self::new(401, "invalid_request_error", "", &message)
    }

    pub fn forbidden() -> Self {
        let message = "The provided key does not have the required permissions for this endpoint.";
        Self::new(403, "invalid_request_error", "more_permissions_required", message)
    }

    pub fn unknown_path(method: &str, path: &str) -> Self {
        let message = format!("Unrecognized request URL ({method}: {path}).");
        Self::new(404, "invalid_request_error", "", &message)
    }

    pub fn other_body() -> Self {
        let message = "Keys for idempotent requests can only be used with the same parameters they were first used with.";
        Self::new(400, "idempotency_error", "", message)
    }

    pub fn in_progress() -> Self {
        let message = "There is currently another in-progress request using this Stripe-Idempotency-Key.";
        Self::new(409, "idempotency_error", "idempotency_key_in_use", message)
    }

    pub fn account() -> Self {
        let message = "Your account cannot currently make live charges.";
        Self::new(400, "invalid_request_error", "account_invalid", message)
    }

    pub fn too_many() -> Self {
        Self::new(429, "invalid_request_error", "rate_limit", "Request rate limit exceeded.")
    }

    pub fn internal() -> Self {
        Self { is_kept: true, ..Self::new(500, "api_error", "", "An unknown error occurred") }
    }

    pub fn body(&self) -> Value {
        json!({"error": self.error})
    }
}
