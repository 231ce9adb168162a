//! The current prices of models.

use std::sync::Arc;

use crate::Billing;
use catalog::{Catalog, Kind, Price, VolumeDiscount};
use kernel::clock::Time;

/// The prices and volume discounts at a point in time.
#[derive(Clone)]
pub struct Pricing {
    catalog: Arc<Catalog>,
    now: Time,
    /// ISO 4217 code.
    pub currency: String,
}

/// Returns the prices that are in force now.
pub fn read(billing: &Billing) -> Pricing {
    Pricing {
        catalog: Arc::clone(&billing.catalog.now()),
        now: billing.clock.now(),
        currency: billing.settings.currency.clone(),
    }
}

impl Pricing {
    /// Returns the id, kind and prices of each model, the price without conditions last. Models without a
    /// price, which can't be used, are omitted.
    pub fn models(&self) -> impl Iterator<Item = (&str, Kind, &[Price])> {
        let models = self.catalog.models();
        let priced = models.map(|model| (model.id.as_str(), model.kind, model.prices_at(self.now)));
        priced.filter(|(_, _, prices)| !prices.is_empty())
    }

    /// Returns the volume discounts of this month, the lowest threshold first.
    pub fn volume_discounts(&self) -> &[VolumeDiscount] {
        self.catalog.tiers_of_month(self.now.day().month())
    }
}
