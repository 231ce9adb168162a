//! What a catalog changes of the one before it, and what it must not change.

use std::sync::Arc;

use super::{Catalog, CatalogError, Model};
use crate::clock::Time;

/// What is another than before: ids of models, in the order of their file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Offered now and not before.
    pub added: Vec<String>,
    /// Offered before, and only known for late usage now.
    pub retired: Vec<String>,
    /// Not in the file any more: late usage of it is refused.
    pub removed: Vec<String>,
    /// In both, and not the same: limits, prices, words.
    pub changed: Vec<String>,
    /// Whether discounts or the order of the models are others.
    pub rest: bool,
}

impl Difference {
    /// Whether everything is as it was.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Catalog {
    /// What this catalog changes when it takes the place of `old` at `now`.
    ///
    /// # Errors
    /// It has another amount for a price that is in force already. A price's version is the instant from which it holds,
    /// and usage was rated by it: two amounts of one version could never be told apart on a bill.
    pub fn differs_from(&self, old: &Self, now: Time) -> Result<Difference, CatalogError> {
        let problems: Vec<_> =
            self.models_even_retired().flat_map(|model| self.rewritten(old, model, now)).collect();
        if !problems.is_empty() {
            return Err(CatalogError { problems });
        }
        let mut difference = Difference {
            removed: ids(old.models_even_retired().filter(|m| self.get_even_retired(&m.id).is_none())),
            ..Difference::default()
        };
        for model in self.models_even_retired() {
            let before = old.get_even_retired(&model.id);
            let list = match before {
                Some(before) if before == model => continue,
                _ if !model.retired && before.is_none_or(|before| before.retired) => &mut difference.added,
                Some(before) if model.retired && !before.retired => &mut difference.retired,
                _ => &mut difference.changed,
            };
            list.push(model.id.clone());
        }
        let order = |catalog: &Self| ids(catalog.models_even_retired());
        let same_models = difference.is_nothing();
        difference.rest =
            self.volume_discounts != old.volume_discounts || same_models && order(self) != order(old);
        Ok(difference)
    }

    /// A line for each price of `model` that is in force in `old` with another amount.
    fn rewritten(&self, old: &Self, model: &Model, now: Time) -> Vec<String> {
        let Some(before) = old.get_even_retired(&model.id) else {
            return Vec::new();
        };
        let in_force = before.prices.iter().filter(|price| price.effective_at <= now);
        let changed = in_force.filter_map(|was| {
            let is = model.prices.iter().find(|price| price.effective_at == was.effective_at)?;
            (is != was).then(|| {
                let (place, id) = (self.place_of_price(&model.id, is), &model.id);
                format!(
                    "{place}: model `{id}`: `prices`: the price from {} on is in force and can't become another: keep it, \
                     and add one with an `effective_at` of its own",
                    is.effective_at
                )
            })
        });
        changed.collect()
    }
}

fn ids<'a>(models: impl Iterator<Item = &'a Arc<Model>>) -> Vec<String> {
    models.map(|model| model.id.clone()).collect()
}
