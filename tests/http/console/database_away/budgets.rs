//! The forms of budgets.

use super::TYPED;

/// The fields of a form.
type Fields = Vec<(&'static str, String)>;

pub fn made() -> Fields {
    let fields = [
        ("name", TYPED),
        ("scope", "organization"),
        ("project_id", ""),
        ("api_key_id", ""),
        ("period", "day"),
        ("limit", "12.50"),
        ("shown", "hard"),
        ("hard", "true"),
        ("thresholds", "50\r\n80"),
    ];
    fields.map(|(name, value)| (name, value.to_owned())).into()
}

/// The fields of a change, with the version of the changed object.
pub fn changed(version: (&'static str, String)) -> Fields {
    let fields = [("name", "Changed"), ("limit", "0.5"), ("thresholds", "90")];
    [version].into_iter().chain(fields.map(|(name, value)| (name, value.to_owned()))).collect()
}
