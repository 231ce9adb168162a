//! The months and models in the lines of invoices and credit notes.

use kernel::clock::Month;

/// The prefixes of lines with a month other than the document's month.
const PREFIXES: [&str; 3] = ["Volume discount of ", "Correction of ", "Late usage of "];
const DISCOUNT: &str = "Volume discount";

/// The subject of a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Subject {
    /// The month of use, if it isn't the document's month.
    pub(super) month: Option<Month>,
    pub(super) model: Option<String>,
}

/// Parses the description that [`crate::rules::invoicing`] gave a line. Stored lines never change, and no
/// other field contains their subject.
pub(super) fn subject(description: &str) -> Subject {
    let named = PREFIXES.iter().find_map(|prefix| description.strip_prefix(prefix));
    let month = named.and_then(|rest| Month::parse(rest.get(..7)?));
    if month.is_none() && !description.starts_with(DISCOUNT) {
        return Subject::default();
    }
    let model = description.split_once(": ").and_then(|(_, rest)| rest.split_once(", "));
    Subject { month, model: model.map(|(model, _)| model.to_owned()) }
}
