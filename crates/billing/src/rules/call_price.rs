//! The highest price that a call can have, which is reserved for it.

use catalog::{Component, Kind, Model, Price};
use kernel::clock::Time;
use kernel::money::Pico;

/// The size of a call, if known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSize {
    /// Estimated tokens of the prompt, or of all inputs together.
    pub prompt_tokens: Option<i64>,
    /// Maximum number of tokens of one answer; ignored for embeddings.
    pub max_tokens: i64,
    /// The number of answers; ignored for embeddings.
    pub choices: i64,
    /// The number of inputs of an embeddings call.
    pub inputs: i64,
    /// Maximum number of searches that the upstream makes for an answer.
    pub searches: i64,
    /// Maximum number of seconds of audio or video that the upstream counts.
    pub seconds: i64,
}

impl CallSize {
    /// Returns the maximum numbers of input and output tokens.
    fn tokens(self, model: &Model) -> (i128, i128) {
        let max = i128::from(model.max_tokens);
        let (inputs, choices) = match model.kind {
            Kind::Embeddings => (i128::from(self.inputs), 0),
            Kind::Chat => (1, i128::from(self.choices)),
        };
        let prompt_tokens = self.prompt_tokens.map_or_else(|| max.saturating_mul(inputs), i128::from);
        (prompt_tokens, choices.saturating_mul(self.max_tokens.into()))
    }
}

/// The factor by which a prompt may exceed its estimated tokens. A price that applies above a number of
/// tokens is therefore reserved from half of that number on.
const PROMPT_FACTOR: i64 = 2;

/// Returns the highest price of a call of this size that is admitted at `time`: the highest of the prices
/// that may apply, with each token at the price of its most expensive part. Returns `None` if the model has
/// no price at that time. The result may be too large for the databases; such a call can't be billed.
///
/// Only prices whose hours contain the time may apply. The tier of the answer isn't known yet, so any tier is
/// possible. A prompt may have up to twice its estimated tokens.
pub fn highest_price(model: &Model, time: Time, size: CallSize) -> Option<Pico> {
    let prices = model.prices_at(time).iter();
    let most = size.prompt_tokens.map_or(i64::MAX, |tokens| tokens.saturating_mul(PROMPT_FACTOR));
    let possible = prices.filter(|Price { conditions, .. }| {
        conditions.hours.as_ref().is_none_or(|hours| hours.contain(time))
            && conditions.above_prompt_tokens.is_none_or(|tokens| most > tokens)
    });
    possible.map(|price| highest_at(model, price, size)).max()
}

fn highest_at(model: &Model, price: &Price, size: CallSize) -> Pico {
    let (prompt_tokens, completion_tokens) = size.tokens(model);
    let pieces = [
        (Component::Request, 1),
        (Component::Search, i128::from(size.searches)),
        (Component::Second, i128::from(size.seconds)),
    ];
    let quantities = pieces.map(|(piece, quantity)| (price.of(piece), quantity)).into_iter().chain([
        (price.dearest(Component::Prompt), prompt_tokens),
        (price.dearest(Component::Completion), completion_tokens),
    ]);
    let costs = quantities.map(|(price, quantity)| price.units().saturating_mul(quantity));
    Pico::from_units(costs.fold(0, i128::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Catalog, ComponentPrices, Conditions, PartPrices, ServiceTier};

    const NOW: Time = Time::from_unix_ms(1_000);

    fn rates(prompt: i128, completion: i128) -> ComponentPrices {
        ComponentPrices {
            prompt: Pico::from_units(prompt),
            cached_prompt: Some(Pico::from_units(1)),
            completion: Pico::from_units(completion),
            parts: PartPrices::default(),
        }
    }

    /// A model of the built-in catalog with these prices: svc-1 takes 4,096 tokens, svc-embedding-1 takes
    /// 8,192.
    fn model(id: &str, prices: &[Price]) -> Model {
        let catalog = Catalog::built_in().unwrap();
        Model { prices: prices.to_vec(), ..(**catalog.get(id).unwrap()).clone() }
    }

    fn size(prompt_tokens: Option<i64>, max_tokens: i64, choices: i64, inputs: i64) -> CallSize {
        CallSize { prompt_tokens, max_tokens, choices, inputs, searches: 0, seconds: 0 }
    }

    #[test]
    fn highest_price_counts_all_tokens() {
        let price = Price::new(Time::from_unix_ms(0), rates(100, 3));
        let (chat, embeddings) = ("svc-1", "svc-embedding-1");
        let cases = [
            (chat, size(Some(0), 0, 1, 1), 0),
            (chat, size(Some(7), 5, 1, 1), 715),
            (chat, size(Some(7), 5, 128, 1), 700 + 3 * 5 * 128),
            (chat, size(None, 5, 1, 1), 409_615),
            (chat, size(None, 5, 2, 2_048), 409_630),
            (embeddings, size(None, 9, 128, 1), 819_200),
            (embeddings, size(None, 9, 128, 2_048), 819_200 * 2_048),
            (embeddings, size(Some(10), 9, 128, 2_048), 1_000),
        ];
        for (id, size, due) in cases {
            let highest = highest_price(&model(id, std::slice::from_ref(&price)), NOW, size).unwrap();
            assert_eq!(highest.units(), due, "{size:?}");
        }
        let dear = Price::new(Time::from_unix_ms(0), rates(i128::MAX, 3));
        let highest = highest_price(&model("svc-1", &[dear]), NOW, size(Some(2), 1, 1, 1));
        assert_eq!(highest.map(Pico::units), Some(i128::MAX));
        assert_eq!(highest_price(&model("svc-1", &[]), NOW, size(Some(2), 1, 1, 1)), None);
    }

    #[test]
    fn highest_price_is_of_the_dearest_parts_and_conditions() {
        let pico = |units: i128| Some(Pico::from_units(units));
        let parts = PartPrices::default()
            .with(Component::CacheWrite1h, pico(200))
            .with(Component::Reasoning, pico(2))
            .with(Component::AudioCompletion, pico(50))
            .with(Component::Request, pico(1_000))
            .with(Component::Search, pico(10))
            .with(Component::Second, pico(7));
        let base = Price::new(Time::from_unix_ms(0), ComponentPrices { parts, ..rates(100, 3) });
        let one = size(Some(7), 5, 1, 1);
        // 7 x 200 + 5 x 50 + 1 x 1,000, 3 x 10 with three searches, and 4 x 7 with four seconds.
        let of = |prices: &[Price], size| highest_price(&model("svc-1", prices), NOW, size).unwrap().units();
        assert_eq!(of(std::slice::from_ref(&base), one), 2_650);
        assert_eq!(of(std::slice::from_ref(&base), CallSize { searches: 3, ..one }), 2_680);
        assert_eq!(of(std::slice::from_ref(&base), CallSize { seconds: 4, ..one }), 2_678);
        let with = |conditions: &str, prompt| {
            Price::conditional(
                Time::from_unix_ms(0),
                Conditions::parse(conditions).unwrap(),
                rates(prompt, 3),
            )
        };
        // 7 x 1,000 + 5 x 3 for a tier that the answer may have, and for a prompt that may be longer.
        assert_eq!(of(&[with("tier:priority", 1_000), base.clone()], one), 7_015);
        assert_eq!(of(&[with("above:13", 1_000), base.clone()], one), 7_015);
        assert_eq!(of(&[with("above:14", 1_000), base.clone()], one), 2_650);
        // Without an estimate, the prompt may have as many tokens as the model takes: 4,096 x 1,000 + 5 x 3.
        assert_eq!(
            of(&[with("above:200000", 1_000), base.clone()], CallSize { prompt_tokens: None, ..one }),
            4_096_015
        );
        // A cheaper price changes nothing.
        assert_eq!(of(&[with("tier:flex", 50), base.clone()], one), 2_650);
        // The time is a Thursday, minute 4,320 of the week.
        assert_eq!(of(&[with("hours:4320-4321", 1_000), base.clone()], one), 7_015);
        assert_eq!(of(&[with("hours:4321-4322", 1_000), base], one), 2_650);
        assert_eq!(ServiceTier::of_answer("standard"), ServiceTier::Default);
    }
}
