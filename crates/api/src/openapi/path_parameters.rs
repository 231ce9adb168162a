//! The parameters of paths.

use kernel::error::Code;

/// A path parameter.
pub struct PathParameter {
    name: &'static str,
    pub description: &'static str,
    pub example: &'static str,
    /// The error for an id that doesn't exist.
    pub unknown: Code,
}

/// Returns the names of the parameters in a path.
pub fn of(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|n| n.trim_start_matches('*'))
}

/// Returns a parameter by its name.
pub fn find(name: &str) -> Option<&'static PathParameter> {
    ALL.iter().find(|one| one.name == name)
}

const fn parameter(
    name: &'static str,
    description: &'static str,
    example: &'static str,
    unknown: Code,
) -> PathParameter {
    PathParameter { name, description, example, unknown }
}

#[rustfmt::skip]
static ALL: [PathParameter; 17] = [
    parameter("organization_id", "The id of the organization.", "org_01kfz3v9xee8tb2m6h0q5w7r4n", Code::OrganizationNotFound),
    parameter("project_id", "The id of the project.", "proj_01kfz3v9xee8tb2m6h0q5w7r4n", Code::ProjectNotFound),
    parameter("key_id", "The id of the API key.", "key_01kfz3v9xee8tb2m6h0q5w7r4n", Code::ApiKeyNotFound),
    parameter("member_id", "The user id of the member.", "user_01kfz3v9xee8tb2m6h0q5w7r4n", Code::MemberNotFound),
    parameter("invitation_id", "The id of the invitation.", "inv_01kfz3v9xee8tb2m6h0q5w7r4n", Code::InvitationNotFound),
    parameter("invoice_id", "The id of the invoice.", "invoice_01kfz3v9xee8tb2m6h0q5w7r4n", Code::InvoiceNotFound),
    parameter("budget_id", "The id of the budget.", "budget_01kfz3v9xee8tb2m6h0q5w7r4n", Code::BudgetNotFound),
    parameter("payment_id", "The id of the payment.", "payment_01kfz3v9xee8tb2m6h0q5w7r4n", Code::PaymentNotFound),
    parameter("session_id", "The id of the session.", "sess_01kfz3v9xee8tb2m6h0q5w7r4n", Code::SessionNotFound),
    parameter("passkey_id", "The id of the passkey.", "passkey_01kfz3v9xee8tb2m6h0q5w7r4n", Code::PasskeyNotFound),
    parameter("connection_id", "The id of the connection.", "con_01kfz3v9xee8tb2m6h0q5w7r4n", Code::ConnectionNotFound),
    parameter("reservation_id", "The id of the reservation.", "res_01kfz3v9xee8tb2m6h0q5w7r4n", Code::ReservationNotFound),
    parameter("webhook_id", "The id of the webhook.", "webhook_01kfz3v9xee8tb2m6h0q5w7r4n", Code::WebhookNotFound),
    parameter("delivery_id", "The id of the delivery.", "delivery_01kfz3v9xee8tb2m6h0q5w7r4n", Code::DeliveryNotFound),
    parameter("call_id", "The id of the model call, from its header `x-tollkeeper-call-id`.", "call_01kfz3v9xee8tb2m6h0q5w7r4n", Code::CallNotFound),
    parameter("model_id", "The id of the model, which may contain slashes.", "svc-1", Code::ModelNotFound),
    parameter("subject", "The subject's name in the links of the overview, such as `api-keys`.", "api-keys", Code::UnknownPath),
];
