//! The changes that a catalog makes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Catalog, Model, Upstream};

/// The changes between two catalogs: ids of models, in the order of their file, and of upstreams.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Offered now and not before.
    pub added: Vec<String>,
    /// Offered before, and only known for late usage now.
    pub retired: Vec<String>,
    /// No longer in the file: late usage of it is refused.
    pub removed: Vec<String>,
    /// Changed limits, prices, texts or routes.
    pub changed: Vec<String>,
    /// Upstreams that are new, changed, or not in the file any more.
    pub upstreams: Vec<String>,
    /// The discounts or the order of the models changed.
    pub others: bool,
}

impl Difference {
    /// Returns `true` if nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Catalog {
    /// Returns the changes that this catalog makes when it replaces `old`.
    pub fn changes_from(&self, old: &Self) -> Difference {
        let mut difference = Difference {
            removed: ids(old.all_models().filter(|m| self.get_any(&m.id).is_none())),
            ..Difference::default()
        };
        for model in self.all_models() {
            let before = old.get_any(&model.id);
            let list = match before {
                Some(before) if before == model => continue,
                _ if !model.retired && before.is_none_or(|before| before.retired) => &mut difference.added,
                Some(before) if model.retired && !before.retired => &mut difference.retired,
                _ => &mut difference.changed,
            };
            list.push(model.id.clone());
        }
        let differs = |catalog: &Self, upstream: &Arc<Upstream>| !catalog.upstreams.contains(upstream);
        let new = self.upstreams.iter().filter(|upstream| differs(old, upstream));
        let gone = old.upstreams.iter().filter(|upstream| differs(self, upstream));
        let upstreams: BTreeSet<_> = new.chain(gone).map(|upstream| upstream.id.clone()).collect();
        let order = |catalog: &Self| ids(catalog.all_models());
        let same_models = difference.is_empty();
        difference.others =
            self.book.discounts() != old.book.discounts() || same_models && order(self) != order(old);
        difference.upstreams = upstreams.into_iter().collect();
        difference
    }
}

fn ids<'a>(models: impl Iterator<Item = &'a Arc<Model>>) -> Vec<String> {
    models.map(|model| model.id.clone()).collect()
}
