//! Examples of text properties.

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
        "end_user" => Some("grace"),
        "password" | "password_confirmation" | "current_password" => Some("Correct-Horse-7-Staple"),
        "new_password" | "new_password_confirmation" => Some("Violet-Kettle-Orbit-9"),
        "token" => Some("VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc"),
        _ => None,
    }
}
