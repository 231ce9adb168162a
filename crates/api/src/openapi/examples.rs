//! Example values of path parameters and texts, by their names.

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
