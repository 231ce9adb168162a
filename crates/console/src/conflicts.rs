//! Conflicting changes: a page that shows both versions, so that the user can choose.
//!
//! A form that changes an object is filled by [`FormView::versioned`], which adds the version of the form's
//! initial values. The handler of the form reads the current object, fills the same form with it, and calls
//! [`check`]. The change then expects the version that was read, so that no other change can happen in
//! between.

use api::gate::SignedIn;
use askama::Template;
use input::forms::{SHOWN, WAS};
use kernel::error::Error;
use web::forms::ObjectForm;

use crate::console::Console;
use crate::form_view::{FormView, VERSION};
use crate::links;
use crate::page::Page;
use crate::shell::Shell;

/// A field whose value in the form differs from the value on the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub label: &'static str,
    pub mine: String,
    pub theirs: String,
}

#[derive(Template)]
#[template(path = "conflict.html")]
struct ConflictPage {
    shell: Shell,
    differences: Vec<Difference>,
    /// The URL that the form is sent to.
    action: String,
    /// The form as it was sent, with the version of the current object.
    fields: Vec<(String, String)>,
    /// The link to the current object.
    back: String,
}

/// Returns the page with both versions (409) if the object was changed after the form had been filled, and
/// the form would undo some of the changes. `current` is the form filled with the current values, and `back`
/// is the link to the page that shows them.
///
/// # Errors
/// An error if the database fails.
pub async fn check<T>(
    console: &Console,
    person: &SignedIn,
    form: &ObjectForm<T>,
    current: &FormView,
    back: &str,
) -> Result<Option<Page>, Error> {
    if form.sent(VERSION) == current.value(VERSION) {
        return Ok(None);
    }
    let differences = differences(form.pairs(), &FormView::sent(current.labels(), form), current);
    if differences.is_empty() {
        return Ok(None);
    }
    let is_kept = |(name, _): &&(String, String)| name != VERSION && !name.starts_with(WAS);
    let others = form.pairs().iter().filter(is_kept).cloned();
    let version = (VERSION.to_owned(), current.value(VERSION).to_owned());
    let target = person.target();
    let page = ConflictPage {
        shell: Shell::read(console, person).await?,
        differences,
        action: format!("{}{}", console.base(), links::same_page(&target.path, &target.query)),
        fields: others.chain([version]).collect(),
        back: back.to_owned(),
    };
    Page::conflict(&page).map(Some)
}

fn differences(sent: &[(String, String)], mine: &FormView, theirs: &FormView) -> Vec<Difference> {
    let is_shown =
        |field: &str| sent.iter().any(|(name, value)| name == field || name == SHOWN && value == field);
    let fields = theirs.labels().iter().filter(|(name, _)| is_shown(name));
    let difference = |(name, label): &(&str, &'static str)| {
        let [mine, theirs] = [mine, theirs].map(|form| shown(&form.lines(name)));
        (mine != theirs).then(|| in_words(label, mine, theirs))
    };
    fields.filter_map(difference).collect()
}

/// Returns the lines of a string without carriage returns, which browsers add, and without empty lines at the
/// start and end. The value `false` becomes empty, because browsers don't send an unchecked box.
fn shown(text: &str) -> String {
    let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned();
    if text == "false" { String::new() } else { text }
}

fn in_words(label: &'static str, mine: String, theirs: String) -> Difference {
    let is_box = [&mine, &theirs].into_iter().all(|value| ["true", ""].contains(&value.as_str()));
    let words = |value: String| match value.as_str() {
        "true" if is_box => "Yes".to_owned(),
        "" if is_box => "No".to_owned(),
        "" => "Nothing".to_owned(),
        _ => value,
    };
    Difference { label, mine: words(mine), theirs: words(theirs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: crate::form_view::Labels =
        &[("name", "Name"), ("limits.addresses", "Addresses"), ("is_open", "Open"), ("other", "Other")];

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn view(values: &[(&str, &str)]) -> FormView {
        values.iter().fold(FormView::new(LABELS), |view, (name, value)| view.with(name, *value))
    }

    fn found(sent: &[(&str, &str)], theirs: &[(&str, &str)]) -> Vec<(&'static str, String, String)> {
        let differences = differences(&pairs(sent), &view(sent), &view(theirs));
        differences.into_iter().map(|d| (d.label, d.mine, d.theirs)).collect()
    }

    #[test]
    fn only_fields_of_the_form_with_another_value_differ() {
        let theirs = [("name", "A"), ("limits.addresses", "::1\n::2"), ("other", "x"), ("is_open", "false")];
        let same = [("name", "A"), ("limits.addresses", "::1\r\n::2\r\n"), ("shown", "is_open")];
        assert_eq!(found(&same, &theirs), []);
        let sent = [("name", ""), ("limits.addresses", "::1"), ("shown", "is_open"), ("is_open", "true")];
        let text = str::to_owned;
        let expected = [
            ("Name", text("Nothing"), text("A")),
            ("Addresses", text("::1"), text("::1\n::2")),
            ("Open", text("Yes"), text("No")),
        ];
        assert_eq!(found(&sent, &theirs), expected);
    }

    #[test]
    fn version_is_that_of_the_values() {
        let version = |values: &[(&str, &str)]| view(values).versioned().unwrap().value(VERSION).to_owned();
        assert_eq!(version(&[("name", "A"), ("other", "")]), version(&[("name", "A")]));
        assert_ne!(version(&[("name", "A")]), version(&[("other", "A")]));
        assert_ne!(
            version(&[("limits.addresses", "a"), ("limits.addresses", "b")]),
            version(&[("limits.addresses", "a")])
        );
    }
}
