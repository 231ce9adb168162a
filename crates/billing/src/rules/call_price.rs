//! The highest price that a call can have, which is reserved for it.

use catalog::{Kind, Model, Price};
use kernel::money::Pico;

/// The size of a call, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSize {
    /// Estimated tokens of the prompt, or of all texts together.
    pub prompt_tokens: Option<i64>,
    /// Maximum number of tokens of one answer; ignored for embeddings.
    pub max_tokens: i64,
    /// The number of answers; ignored for embeddings.
    pub choices: i64,
    /// The number of texts of an embeddings call.
    pub inputs: i64,
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

/// Returns the highest price of a call of this size. It may be too large for the databases: such a call can't
/// be billed.
pub fn highest_price(model: &Model, price: &Price, size: CallSize) -> Pico {
    let (prompt_tokens, completion_tokens) = size.tokens(model);
    let prompt = price.prompt.units().saturating_mul(prompt_tokens);
    let completion = price.completion.units().saturating_mul(completion_tokens);
    Pico::from_units(prompt.saturating_add(completion))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::Catalog;
    use kernel::clock::Time;

    /// The model svc-1 takes 4,096 tokens, svc-embedding-1 takes 8,192.
    #[test]
    fn highest_price_counts_all_tokens() {
        let catalog = Catalog::built_in().unwrap();
        let price = Price {
            effective_at: Time::from_unix_ms(0),
            prompt: Pico::from_units(100),
            cached_prompt: Some(Pico::from_units(1)),
            completion: Pico::from_units(3),
        };
        let size = |prompt_tokens, max_tokens, choices, inputs| CallSize {
            prompt_tokens,
            max_tokens,
            choices,
            inputs,
        };
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
        for (model, size, due) in cases {
            assert_eq!(highest_price(catalog.get(model).unwrap(), &price, size).units(), due, "{size:?}");
        }
        let dear = Price { prompt: Pico::from_units(i128::MAX), ..price };
        let size = size(Some(2), 1, 1, 1);
        assert_eq!(highest_price(catalog.get("svc-1").unwrap(), &dear, size).units(), i128::MAX);
    }
}
