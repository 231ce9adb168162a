//! Example values: of path parameters and texts by their names, and of whole bodies.
//!
//! A body is written as a person would write it, with the fields that most callers send.

use serde_json::Value;

use super::handler_words;
use crate::routes::Route;

/// Returns the example of a path parameter.
pub fn path_parameter(name: &str) -> &'static str {
    match name {
        "organization_id" => "org_01kfz3v9xee8tb2m6h0q5w7r4n",
        "project_id" => "proj_01kfz3v9xee8tb2m6h0q5w7r4n",
        "member_id" => "user_01kfz3v9xee8tb2m6h0q5w7r4n",
        "invitation_id" => "inv_01kfz3v9xee8tb2m6h0q5w7r4n",
        "key_id" => "key_01kfz3v9xee8tb2m6h0q5w7r4n",
        "invoice_id" => "invoice_01kfz3v9xee8tb2m6h0q5w7r4n",
        "budget_id" => "budget_01kfz3v9xee8tb2m6h0q5w7r4n",
        "payment_id" => "payment_01kfz3v9xee8tb2m6h0q5w7r4n",
        "session_id" => "sess_01kfz3v9xee8tb2m6h0q5w7r4n",
        "passkey_id" => "passkey_01kfz3v9xee8tb2m6h0q5w7r4n",
        "connection_id" => "con_01kfz3v9xee8tb2m6h0q5w7r4n",
        "webhook_id" => "webhook_01kfz3v9xee8tb2m6h0q5w7r4n",
        "delivery_id" => "delivery_01kfz3v9xee8tb2m6h0q5w7r4n",
        "reservation_id" => "res_01kfz3v9xee8tb2m6h0q5w7r4n",
        "subject" => "api-keys",
        _ => "svc-1",
    }
}

/// Returns the example of a text property by its name.
pub fn text(name: &str) -> Option<&'static str> {
    match name {
        "credential" => Some("tk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG0aBcDe"),
        "email" => Some("ada@example.com"),
        "new_email" => Some("ada.lovelace@example.com"),
        "model" | "after_id" | "before_id" => Some("svc-1"),
        "code" | "one_time_code" => Some("123456"),
        "ceremony" => Some("AX0rT2VuZQ"),
        "organization_id" => Some("org_01kfz3v9xee8tb2m6h0q5w7r4n"),
        "project_id" => Some("proj_01kfz3v9xee8tb2m6h0q5w7r4n"),
        "search" => Some("ada"),
        "password" | "password_confirmation" | "current_password" => Some("Correct-Horse-7-Staple"),
        "new_password" | "new_password_confirmation" => Some("Violet-Kettle-Orbit-9"),
        "token" => Some("VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc"),
        _ => None,
    }
}

/// Returns the example of an operation's body.
pub fn body(route: &Route) -> Option<Value> {
    serde_json::from_str(body_text(&handler_words(route).join("_"))?).ok()
}

/// Returns the parameters of the query in an operation's code samples, which most callers send.
pub fn query(operation: &str) -> &'static [(&'static str, &'static str)] {
    match operation {
        "organizations_billing_usage" | "organizations_projects_usage_read" => {
            &[("start_date", "2026-01-01"), ("end_date", "2026-02-01"), ("group_by", "day,model")]
        }
        "organizations_billing_export" => &[("format", "focus"), ("month", "2026-01")],
        "organizations_audit_log_list" => &[("action", "api_key.created"), ("page_size", "50")],
        "organizations_invitations_list" => &[("status", "pending")],
        "organizations_webhooks_deliveries_list" => &[("state", "failed")],
        "service_forward_auth" => &[("operation", "chat"), ("model", "svc-1"), ("max_tokens", "64")],
        "pages_verify_email_read"
        | "pages_reset_password_read"
        | "pages_change_email_read"
        | "pages_invitations_accept_read" => &[("token", "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc")],
        _ => &[],
    }
}

/// Returns the text of a body's example, with a line for each field.
pub fn body_text(operation: &str) -> Option<&'static str> {
    let row = BODIES.iter().find(|(operations, _)| operations.contains(&operation))?;
    Some(row.1)
}

/// The bodies of operations.
const BODIES: &[(&[&str], &str)] = &[
    (
        &["auth_register"],
        r#"{
  "email": "ada@example.com",
  "password": "Correct-Horse-7-Staple",
  "username": "ada",
  "full_name": "Ada Lovelace"
}"#,
    ),
    (
        &["auth_verify_email", "pages_invitations_accept_create"],
        r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc"
}"#,
    ),
    (
        &["auth_login"],
        r#"{
  "email": "ada@example.com",
  "password": "Correct-Horse-7-Staple"
}"#,
    ),
    (
        &["auth_reauthenticate"],
        r#"{
  "password": "Correct-Horse-7-Staple",
  "one_time_code": "123456"
}"#,
    ),
    (
        &["auth_passkeys_create"],
        r#"{
  "ceremony": "AX0rT2VuZQ",
  "credential": {
    "type": "public-key",
    "id": "3q2-7w",
    "rawId": "3q2-7w",
    "response": {
      "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4",
      "attestationObject": "o2NmbXRkbm9uZQ"
    }
  },
  "name": "Laptop"
}"#,
    ),
    (
        &["auth_passkey_login"],
        r#"{
  "ceremony": "AX0rT2VuZQ",
  "credential": {
    "type": "public-key",
    "id": "3q2-7w",
    "rawId": "3q2-7w",
    "response": {
      "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4",
      "authenticatorData": "YXV0aERhdGE",
      "signature": "MEUCIQDBvq",
      "userHandle": "6vNCcs0IqE"
    }
  }
}"#,
    ),
    (
        &["auth_passkeys_update"],
        r#"{
  "name": "Work laptop"
}"#,
    ),
    (
        &["auth_totp_confirm"],
        r#"{
  "code": "123456"
}"#,
    ),
    (
        &["auth_forgot_password"],
        r#"{
  "email": "ada@example.com"
}"#,
    ),
    (
        &["auth_reset_password", "pages_reset_password_create"],
        r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc",
  "password": "Violet-Kettle-Orbit-9",
  "password_confirmation": "Violet-Kettle-Orbit-9"
}"#,
    ),
    (
        &["auth_change_password"],
        r#"{
  "current_password": "Correct-Horse-7-Staple",
  "new_password": "Violet-Kettle-Orbit-9",
  "new_password_confirmation": "Violet-Kettle-Orbit-9"
}"#,
    ),
    (
        &["auth_change_email"],
        r#"{
  "new_email": "ada.lovelace@example.com",
  "password": "Correct-Horse-7-Staple"
}"#,
    ),
    (
        &["auth_me_update"],
        r#"{
  "full_name": "Ada King",
  "phone": "+441632960961"
}"#,
    ),
    (
        &["pages_verify_email_create", "pages_change_email_create"],
        r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc",
  "password": "Correct-Horse-7-Staple"
}"#,
    ),
    (
        &["organizations_create"],
        r#"{
  "name": "Acme",
  "description": "Makers of anvils"
}"#,
    ),
    (
        &["organizations_update"],
        r#"{
  "description": "Makers of anvils and rockets",
  "settings": {"allow_public_projects": true}
}"#,
    ),
    (
        &["organizations_invitations_create"],
        r#"{
  "email": "grace@example.com",
  "role": "member",
  "message": "Welcome to Acme."
}"#,
    ),
    (
        &["organizations_members_update"],
        r#"{
  "role": "admin"
}"#,
    ),
    (
        &["organizations_projects_create"],
        r#"{
  "name": "Acme chat",
  "settings": {"model": "svc-1", "temperature": 0.7}
}"#,
    ),
    (
        &["organizations_projects_update"],
        r#"{
  "description": "The assistant in the shop",
  "settings": {"max_tokens": 4096}
}"#,
    ),
    (
        &["organizations_billing_budgets_create"],
        r#"{
  "name": "Everything",
  "scope": "organization",
  "period": "month",
  "limit": 500,
  "hard": true,
  "thresholds": [50, 80, 100]
}"#,
    ),
    (
        &["organizations_billing_balance_alert_update"],
        r#"{
  "below": 25
}"#,
    ),
    (
        &["organizations_billing_payments_create"],
        r#"{
  "amount": 50,
  "save_card": true
}"#,
    ),
    (
        &["organizations_billing_auto_top_up_update"],
        r#"{
  "enabled": true,
  "threshold": 10,
  "restore_to": 50,
  "monthly_cap": 500
}"#,
    ),
    (
        &["billing_stripe_events_create"],
        r#"{
  "id": "evt_1TuYXvKZ8f3vQh2q9Yx1wJtN",
  "type": "checkout.session.completed"
}"#,
    ),
    (
        &["organizations_billing_budgets_update"],
        r#"{
  "limit": 750
}"#,
    ),
    (
        &["organizations_projects_members_create"],
        r#"{
  "user_id": "user_01kfz3v9xee8tb2m6h0q5w7r4n",
  "role": "developer"
}"#,
    ),
    (
        &["organizations_projects_members_update"],
        r#"{
  "role": "viewer"
}"#,
    ),
    (
        &["organizations_projects_api_keys_create"],
        r#"{
  "name": "Acme chat server",
  "permissions": ["chat", "models"],
  "restrictions": {"rate_limit": 600, "max_tokens": 4096}
}"#,
    ),
    (
        &["organizations_projects_api_keys_update"],
        r#"{
  "name": "Acme chat server 2",
  "restrictions": {"rate_limit": 1200}
}"#,
    ),
    (
        &["organizations_projects_api_keys_rotate"],
        r#"{
  "grace_seconds": 3600
}"#,
    ),
    (
        &["organizations_webhooks_create"],
        r#"{
  "url": "https://example.com/events",
  "events": ["invoice.created", "invoice.paid", "api_key.created"],
  "description": "Our accounting"
}"#,
    ),
    (
        &["organizations_webhooks_update"],
        r#"{
  "events": ["invoice.paid"],
  "enabled": true
}"#,
    ),
    (
        &["organizations_webhooks_redeliver"],
        r#"{
  "since": "2026-01-31T09:30:00Z"
}"#,
    ),
    (
        &["chat_completions_create"],
        r#"{
  "model": "svc-1",
  "messages": [{"role": "user", "content": "Say hello."}],
  "max_tokens": 64
}"#,
    ),
    (
        &["completions_create"],
        r#"{
  "model": "svc-1",
  "prompt": "Once upon a time",
  "max_tokens": 64
}"#,
    ),
    (
        &["embeddings_create"],
        r#"{
  "model": "svc-embedding-1",
  "input": "A text"
}"#,
    ),
    (
        &["responses_create"],
        r#"{
  "model": "svc-1",
  "input": "Say hello.",
  "max_output_tokens": 64
}"#,
    ),
    (
        &["messages_create"],
        r#"{
  "model": "svc-1",
  "max_tokens": 64,
  "messages": [{"role": "user", "content": "Say hello."}]
}"#,
    ),
    (
        &["messages_count_tokens"],
        r#"{
  "model": "svc-1",
  "messages": [{"role": "user", "content": "Say hello."}]
}"#,
    ),
    (
        &["service_authorize"],
        r#"{
  "credential": "tk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG0aBcDe",
  "operation": "chat",
  "model": "svc-1",
  "max_tokens": 64,
  "client_address": "203.0.113.7",
  "request_id": "call-1"
}"#,
    ),
    (
        &["service_usage"],
        r#"{
  "events": [
    {
      "id": "call-1",
      "source": "vllm-1",
      "time": "2026-01-31T09:30:00Z",
      "model": "svc-1",
      "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n",
      "kind": "chat",
      "prompt_tokens": 12,
      "completion_tokens": 34
    }
  ]
}"#,
    ),
];
