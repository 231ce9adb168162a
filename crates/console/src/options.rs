//! The options of forms.

use crate::console::Console;

/// A value with its label.
pub type Choice = (String, String);

/// Returns the models that can be called, and the models in `others` that can no longer be called.
pub fn models<'a>(console: &Console, others: impl IntoIterator<Item = &'a str>) -> Vec<Choice> {
    let catalog = console.catalog.now();
    let mut models: Vec<_> = catalog.models().map(|model| (model.id.clone(), model.id.clone())).collect();
    for other in others {
        if catalog.get(other).is_none() {
            models.push((other.to_owned(), format!("{other} (retired)")));
        }
    }
    models
}
