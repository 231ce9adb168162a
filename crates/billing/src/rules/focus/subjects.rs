//! Months and models that the lines of invoices and credit notes name.

use kernel::clock::Month;

/// The beginnings of lines that name another month than that of the document.
const PREFIXES: [&str; 3] = ["Volume discount of ", "Correction of ", "Late usage of "];
const DISCOUNT: &str = "Volume discount";

/// The subject of a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Subject {
    /// The month of use, if it isn't that of the document.
    pub(super) month: Option<Month>,
    pub(super) model: Option<String>,
}

/// Reads the description that [`crate::rules::invoicing`] gave a line. A stored line never changes, and has no
/// other field with its subject.
pub(super) fn subject(description: &str) -> Subject {
    let named = PREFIXES.iter().find_map(|prefix| description.strip_prefix(prefix));
    let month = named.and_then(|rest| Month::parse(rest.get(..7)?));
    if month.is_none() && !description.starts_with(DISCOUNT) {
        return Subject::default();
    }
    let model = description.split_once(": ").and_then(|(_, rest)| rest.split_once(", "));
    Subject { month, model: model.map(|(model, _)| model.to_owned()) }
}
