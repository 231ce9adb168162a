//! What a number of tokens costs: exact, or not at all.

use crate::catalog::Price;
use crate::money::Pico;

/// The list price of these tokens, in pico of the currency.
///
/// `None` when a count is negative or the sum leaves the 64 bits in which the databases hold an amount: such
/// usage is refused, never cut.
pub fn rate(price: &Price, prompt_tokens: i64, completion_tokens: i64) -> Option<Pico> {
    if prompt_tokens < 0 || completion_tokens < 0 {
        return None;
    }
    let prompt = price.prompt.checked_mul(prompt_tokens)?;
    let completion = price.completion.checked_mul(completion_tokens)?;
    let amount = prompt.checked_add(completion)?;
    amount.to_i64().map(|_| amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use proptest::prelude::*;

    fn price(prompt: i128, completion: i128) -> Price {
        Price {
            effective_at: Time::from_unix_ms(0),
            prompt: Pico::from_units(prompt),
            completion: Pico::from_units(completion),
        }
    }

    #[test]
    fn tokens_times_price_without_rounding() {
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
