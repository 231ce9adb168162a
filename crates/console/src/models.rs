//! `/console/models` and `/console/models/{model_id}`

use std::sync::Arc;

use api::gate::{ModelScope, ModelsScope, Visit};
use askama::Template;
use catalog::{Component, Kind, Model, Price, VolumeDiscount};
use kernel::clock::Time;
use kernel::currencies;
use kernel::error::Error;
use kernel::money::Pico;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::samples::{self, ChatCall, Message, Samples};
use crate::shell::Shell;

/// The number of tokens that prices are shown for.
const TOKENS_OF_A_PRICE: i64 = 1_000_000;

/// The prices as a page shows them, in one currency.
#[derive(Clone, Debug)]
struct Prices {
    currency: String,
    now: Time,
}

impl Prices {
    fn of(console: &Console) -> Self {
        Self { currency: console.billing.settings.currency.clone(), now: console.clock.now() }
    }

    /// Returns the price per million tokens.
    fn million(&self, price: &Pico) -> String {
        let amount = price.checked_mul(TOKENS_OF_A_PRICE);
        amount.map_or_else(|| price.to_string(), |amount| currencies::format(amount, &self.currency))
    }

    /// Returns the other components that have a separate price: their name, and the price per million tokens
    /// or per piece.
    fn others(&self, price: &Price) -> Vec<(&'static str, String)> {
        let others = Component::PARTS.into_iter().filter(|part| price.has(*part));
        let shown = |part: Component| match part.tokens() {
            Some(_) => self.million(&price.of(part)),
            None => format!("{} each", currencies::format(price.of(part), &self.currency)),
        };
        others.map(|part| (part.label(), shown(part))).collect()
    }

    /// Returns the current price of a model for calls to which no condition applies.
    fn of_model<'a>(&self, model: &'a Model) -> Option<&'a Price> {
        model.price_at(self.now)
    }

    /// Returns `true` if a model currently has prices with conditions, or for other components.
    fn has_more(&self, model: &Model) -> bool {
        let prices = model.prices_at(self.now);
        prices.len() > 1 || prices.iter().any(|price| !price.parts.is_empty())
    }

    /// Returns `true` if a price of a model applies only under conditions.
    fn has_conditions(model: &Model) -> bool {
        model.prices.iter().any(|price| !price.conditions.is_empty())
    }

    /// Returns a word for the time at which a price is in effect.
    fn state(&self, model: &Model, price: &Price) -> &'static str {
        if model.prices_at(self.now).contains(price) {
            "now"
        } else if price.effective_at > self.now {
            "later"
        } else {
            "past"
        }
    }
}

#[derive(Template)]
#[template(path = "models/list.html")]
struct ListPage {
    shell: Shell,
    prices: Prices,
    models: Vec<Arc<Model>>,
    /// The volume discounts of this month.
    discounts: Vec<VolumeDiscount>,
}

/// List the models with their prices.
pub async fn list(console: Console, visit: Visit<ModelsScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let catalog = Arc::clone(&console.catalog.now());
    let prices = Prices::of(&console);
    let discounts = catalog.tiers_of_month(prices.now.day().month()).to_vec();
    Page::new(&ListPage { shell, prices, models: catalog.models().cloned().collect(), discounts })
}

#[derive(Template)]
#[template(path = "models/model.html")]
struct ModelPage {
    shell: Shell,
    prices: Prices,
    model: Model,
    samples: Samples,
    /// The base URL for programs.
    base_url: String,
}

/// Show a model.
pub async fn read(console: Console, visit: Visit<ModelScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let model = visit.scope.model().clone();
    let samples = match model.kind {
        Kind::Chat => {
            let message = Message { role: "user", content: "Say hello.".to_owned() };
            let call = ChatCall {
                model: model.id.clone(),
                messages: vec![message],
                max_tokens: None,
                temperature: None,
            };
            samples::of_chat(&console.public_url, &call)?
        }
        Kind::Embeddings => samples::of_embeddings(&console.public_url, &model.id, "A text.")?,
    };
    let base_url = format!("{}/v1", console.public_url);
    Page::new(&ModelPage { shell, prices: Prices::of(&console), model, samples, base_url })
}
