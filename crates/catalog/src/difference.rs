//! The differences between two catalogs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Catalog, Model, Upstream};

/// The changes between two catalogs: the ids of models, in the order of their file, and the ids of upstreams.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Models that are newly offered.
    pub added: Vec<String>,
    /// Models that are no longer offered, and accept only late usage.
    pub retired: Vec<String>,
    /// Models that are no longer in the file. Their late usage is refused.
    pub removed: Vec<String>,
    /// Models with changed limits, prices, descriptions or routes.
    pub changed: Vec<String>,
    /// Upstreams that are new, changed, or no longer in the file.
    pub upstreams: Vec<String>,
    /// `true` if the discounts or the order of the models changed.
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
