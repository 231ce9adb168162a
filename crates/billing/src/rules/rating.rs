//! The price of tokens, and of their corrections.

use catalog::Price;
use kernel::money::Pico;

pub use catalog::{Tokens, rate};

/// Tokens with their price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PricedTokens {
    pub tokens: Tokens,
    pub amount: Pico,
}

/// Returns the price of a correction with these negative quantities, as a negative amount, at the price of
/// the corrected event. `left` is the remainder of the event. A correction of the whole remainder refunds the
/// remaining amount, even if the price is no longer known. For other corrections, returns `None` if the price
/// isn't known.
pub fn correction_amount(
    original: PricedTokens,
    left: PricedTokens,
    tokens: Tokens,
    price: Option<&Price>,
) -> Option<Pico> {
    let taken = tokens.checked_neg()?;
    if taken == left.tokens {
        return Some(Pico::from_units(-left.amount.units()));
    }
    // A price that has changed since then wouldn't refund the charged amount.
    let price = price.filter(|price| rate(price, original.tokens) == Some(original.amount))?;
    let back = rate(price, taken)?;
    Some(Pico::from_units(-back.units()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::ComponentPrices;
    use kernel::clock::Time;
    use proptest::prelude::*;

    fn price(prompt: i128, completion: i128) -> Price {
        let rates = ComponentPrices {
            prompt: Pico::from_units(prompt),
            completion: Pico::from_units(completion),
            ..ComponentPrices::default()
        };
        Price::new(Time::from_unix_ms(0), rates)
    }

    fn with_cached(cached_prompt: Option<Pico>, price: Price) -> Price {
        let mut price = price;
        price.cached_prompt = cached_prompt;
        price
    }

    fn tokens(prompt: i64, completion: i64) -> Tokens {
        Tokens::new(prompt, 0, completion)
    }

    #[test]
    fn rate_is_tokens_times_price() {
        let million = 1_000_000;
        let dearest = 1_000_000_000_000_000_000; // one million of the currency for a token
        let cases: [(i128, i128, i64, i64, Option<i128>); 9] = [
            (2_000_000, 6_000_000, 0, 0, Some(0)),
            (2_000_000, 6_000_000, 1, 0, Some(2_000_000)),
            (2_000_000, 6_000_000, 1_000, 500, Some(5_000_000_000)),
            (1, 1, 3, 4, Some(7)),
            (0, 0, i64::MAX, i64::MAX, Some(0)),
            (1, 0, i64::MAX, 0, Some(i128::from(i64::MAX))),
            (1, 1, i64::MAX, 1, None),
            (dearest, dearest, million, million, None),
            (1, 1, -1, 2, None),
        ];
        for (prompt, completion, prompt_tokens, completion_tokens, expected) in cases {
            let amount = rate(&price(prompt, completion), tokens(prompt_tokens, completion_tokens));
            assert_eq!(amount.map(Pico::units), expected, "{prompt} {completion} {prompt_tokens}");
        }
    }

    #[test]
    fn cached_tokens_have_a_price_of_their_own() {
        let ordinary = price(2_000_000, 6_000_000);
        let cheaper = with_cached(Some(Pico::from_units(500_000)), ordinary.clone());
        let free = with_cached(Some(Pico::ZERO), ordinary.clone());
        let cases = [
            // 600 x 2,000,000 + 400 x 500,000 + 200 x 6,000,000
            (&cheaper, [1_000, 400, 200], Some(2_600_000_000_i128)),
            // 1,000 x 2,000,000 + 200 x 6,000,000: cached tokens without their own price, or no cached
            // tokens.
            (&ordinary, [1_000, 400, 200], Some(3_200_000_000)),
            (&cheaper, [1_000, 0, 200], Some(3_200_000_000)),
            // 600 x 2,000,000 + 200 x 6,000,000
            (&free, [1_000, 400, 200], Some(2_400_000_000)),
            // 1,000 x 500,000
            (&cheaper, [1_000, 1_000, 0], Some(500_000_000)),
            (&cheaper, [1_000, 1_001, 0], None),
            (&cheaper, [1_000, -1, 0], None),
            (&cheaper, [-1_000, -400, 0], None),
            (&free, [i64::MAX, i64::MAX, 0], Some(0)),
            (&cheaper, [i64::MAX, i64::MAX, 0], None),
        ];
        for (price, [prompt, cached_prompt, completion], expected) in cases {
            let amount = rate(price, Tokens::new(prompt, cached_prompt, completion));
            assert_eq!(amount.map(Pico::units), expected, "{price} {prompt} {cached_prompt} {completion}");
        }
    }

    #[test]
    fn correction_gives_back_cached_tokens_at_their_price() {
        let price = with_cached(Some(Pico::from_units(1)), price(3, 5));
        let tokens = |prompt, cached_prompt, completion| Tokens::new(prompt, cached_prompt, completion);
        let rated = |tokens| PricedTokens { tokens, amount: rate(&price, tokens).unwrap() };
        let back = |left: PricedTokens, taken, price: Option<&Price>| {
            correction_amount(rated(tokens(10, 4, 20)), left, taken, price).map(Pico::units)
        };
        let all = rated(tokens(10, 4, 20));
        // 6 x 3 + 4 x 1 + 20 x 5
        assert_eq!(all.amount.units(), 122);
        // 2 x 3 + 1 x 1 + 2 x 5
        assert_eq!(back(all, tokens(-3, -1, -2), Some(&price)), Some(-17));
        // The whole remainder: 4 x 3 + 3 x 1 + 18 x 5. The same number of uncached tokens isn't the
        // remainder.
        let left = rated(tokens(7, 3, 18));
        assert_eq!(back(left, tokens(-7, -3, -18), None), Some(-105));
        assert_eq!(back(left, tokens(-7, 0, -18), None), None);
        // The price of cached tokens has changed.
        let other = with_cached(Some(Pico::from_units(2)), price.clone());
        assert_eq!(back(all, tokens(-1, 0, 0), Some(&other)), None);
    }

    #[test]
    fn correction_gives_back_the_exact_amount() {
        let price = price(3, 5);
        let rated = |prompt, completion| {
            let tokens = tokens(prompt, completion);
            PricedTokens { tokens, amount: rate(&price, tokens).unwrap() }
        };
        let back = |left: PricedTokens, p, c, price: Option<&Price>| {
            correction_amount(rated(10, 20), left, tokens(p, c), price).map(Pico::units)
        };
        assert_eq!(back(rated(10, 20), -1, -2, Some(&price)), Some(-13));
        assert_eq!(back(rated(9, 18), -9, -18, Some(&price)), Some(-117));
        assert_eq!(back(rated(9, 18), -9, -18, None), Some(-117));
        assert_eq!(back(rated(9, 18), -9, -17, None), None);
        let dearer = self::price(4, 5);
        assert_eq!(back(rated(10, 20), -1, 0, Some(&dearer)), None);
    }

    proptest! {
        #[test]
        fn equals_the_sum_of_its_parts(p in 0_i128..10_i128.pow(18), c in 0_i128..10_i128.pow(18),
                                       q in 0_i128..10_i128.pow(18),
                                       uncached in 0_i64..10_000_000, cached_prompt in 0_i64..10_000_000,
                                       completion in 0_i64..10_000_000) {
            let exact = p * i128::from(uncached) + q * i128::from(cached_prompt) + c * i128::from(completion);
            let price = with_cached(Some(Pico::from_units(q)), price(p, c));
            let tokens = Tokens::new(uncached + cached_prompt, cached_prompt, completion);
            let amount = rate(&price, tokens).map(Pico::units);
            prop_assert_eq!(amount, i64::try_from(exact).ok().map(i128::from));
        }

        #[test]
        fn without_a_price_cached_tokens_are_ordinary(p in 0_i128..1_000_000_000, c in 0_i128..1_000_000_000,
                                                      prompt in 0_i64..1_000_000, part in 0_i64..=100,
                                                      completion in 0_i64..1_000_000) {
            let cached_prompt = prompt * part / 100;
            let amount = rate(&price(p, c), Tokens::new(prompt, cached_prompt, completion));
            prop_assert_eq!(amount, rate(&price(p, c), tokens(prompt, completion)));
        }

        #[test]
        fn splitting_a_request_changes_nothing(p in 0_i128..1_000_000_000, c in 0_i128..1_000_000_000,
                                               a in 0_i64..1_000_000, b in 0_i64..1_000_000, n in 0_i64..1_000) {
            let price = price(p, c);
            let parts = rate(&price, tokens(a, n)).unwrap().checked_add(rate(&price, tokens(b, 0)).unwrap());
            prop_assert_eq!(rate(&price, tokens(a + b, n)), parts);
        }

        #[test]
        fn never_panics(p in any::<i64>(), c in any::<i64>(), q in any::<i64>(), prompt in any::<i64>(),
                        cached_prompt in any::<i64>(), completion in any::<i64>()) {
            let price = with_cached(Some(Pico::from_units(q.into())), price(p.into(), c.into()));
            let _amount = rate(&price, Tokens::new(prompt, cached_prompt, completion));
        }
    }
}
