//! What a call may cost at most, which is what is set aside for it.

use crate::catalog::Price;
use crate::money::{Nano, Pico};

/// The largest possible price of a call with so many tokens in its prompt and so many in its answer, in whole nanos; a
/// part of one counts as a whole one. It may pass what the databases can hold: then nobody has that much.
pub fn largest_price(price: &Price, prompt_tokens: i64, completion_tokens: i64) -> Nano {
    let prompt = price.prompt.units().saturating_mul(prompt_tokens.into());
    let completion = price.completion.units().saturating_mul(completion_tokens.into());
    Pico::from_units(prompt.saturating_add(completion)).ceil_nano()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;

    #[test]
    fn a_part_of_a_nano_is_a_whole_one() {
        let price = |prompt, completion| Price {
            effective_at: Time::from_unix_ms(0),
            prompt: Pico::from_units(prompt),
            completion: Pico::from_units(completion),
        };
        let cases: [(i128, i128, i64, i64, i128); 6] = [
            (0, 0, 1_000, 1_000, 0),
            (1, 0, 1, 5, 1),
            (1, 1, 999, 1, 1),
            (1, 1, 1_000, 1, 2),
            (2_000_000, 6_000_000, 10, 4_096, 24_596_000),
            (10_i128.pow(18), 0, 1_000_000_000, 0, 10_i128.pow(24)),
        ];
        for (prompt, completion, tokens_in, tokens_out, nano) in cases {
            assert_eq!(largest_price(&price(prompt, completion), tokens_in, tokens_out).units(), nano);
        }
    }
}
