//! The price of tokens, and of their corrections.

use catalog::Price;
use kernel::money::Pico;

pub use catalog::rate;

/// Tokens with their price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PricedTokens {
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub amount: Pico,
}

/// Returns the price of a correction, as a negative amount, at the price of the corrected event, of which
/// `left` is left. A correction of everything that is left gives back the rest of the amount, even if the
/// price isn't known any more; otherwise `None` if the price isn't known.
pub fn correction_amount(
    original: PricedTokens,
    left: PricedTokens,
    prompt_tokens: i64,
    completion_tokens: i64,
    price: Option<&Price>,
) -> Option<Pico> {
    if (prompt_tokens, completion_tokens) == (-left.prompt_tokens, -left.completion_tokens) {
        return Some(Pico::from_units(-left.amount.units()));
    }
    // The price has been changed since: it wouldn't give back what was charged.
    let price = price.filter(|price| {
        rate(price, original.prompt_tokens, original.completion_tokens) == Some(original.amount)
    })?;
    let back = rate(price, prompt_tokens.checked_neg()?, completion_tokens.checked_neg()?)?;
    Some(Pico::from_units(-back.units()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::Time;
    use proptest::prelude::*;

    fn price(prompt: i128, completion: i128) -> Price {
        Price {
            effective_at: Time::from_unix_ms(0),
            prompt: Pico::from_units(prompt),
            completion: Pico::from_units(completion),
        }
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
            let amount = rate(&price(prompt, completion), prompt_tokens, completion_tokens);
            assert_eq!(amount.map(Pico::units), expected, "{prompt} {completion} {prompt_tokens}");
        }
    }

    #[test]
    fn correction_gives_back_the_exact_amount() {
        let price = price(3, 5);
        let rated = |prompt_tokens, completion_tokens| PricedTokens {
            prompt_tokens,
            completion_tokens,
            amount: rate(&price, prompt_tokens, completion_tokens).unwrap(),
        };
        let back = |left: PricedTokens, p, c, price: Option<&Price>| {
            correction_amount(rated(10, 20), left, p, c, price).map(Pico::units)
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
                                       prompt in 0_i64..10_000_000, completion in 0_i64..10_000_000) {
            let exact = p * i128::from(prompt) + c * i128::from(completion);
            let amount = rate(&price(p, c), prompt, completion).map(Pico::units);
            prop_assert_eq!(amount, i64::try_from(exact).ok().map(i128::from));
        }

        #[test]
        fn splitting_a_request_changes_nothing(p in 0_i128..1_000_000_000, c in 0_i128..1_000_000_000,
                                               a in 0_i64..1_000_000, b in 0_i64..1_000_000, n in 0_i64..1_000) {
            let price = price(p, c);
            let parts = rate(&price, a, n).unwrap().checked_add(rate(&price, b, 0).unwrap());
            prop_assert_eq!(rate(&price, a + b, n), parts);
        }

        #[test]
        fn never_panics(p in any::<i64>(), c in any::<i64>(), prompt in any::<i64>(), completion in any::<i64>()) {
            let _amount = rate(&price(p.into(), c.into()), prompt, completion);
        }
    }
}
