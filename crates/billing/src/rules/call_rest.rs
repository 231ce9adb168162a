//! The rest of a call of which a part is charged (docs/contract/gateway.md#what-a-killed-server-costs).

use catalog::Tokens;

/// What is missing from the charge of a call, and what was charged too much.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallRest {
    /// The tokens that aren't charged yet.
    pub more: Tokens,
    /// The tokens that are taken back, as negative counts.
    pub less: Tokens,
}

/// Returns the difference between the tokens of a call and those that are charged. Ordinary tokens of the
/// prompt, cached ones and those of the answer have prices of their own, so each kind is compared by itself.
pub fn call_rest(total: Tokens, charged: Tokens) -> CallRest {
    let ordinary = |tokens: Tokens| tokens.prompt.saturating_sub(tokens.cached_prompt);
    let more = |total: i64, charged: i64| total.saturating_sub(charged).max(0);
    let parts = |total: Tokens, charged: Tokens| {
        let cached_prompt = more(total.cached_prompt, charged.cached_prompt);
        Tokens {
            prompt: more(ordinary(total), ordinary(charged)).saturating_add(cached_prompt),
            cached_prompt,
            completion: more(total.completion, charged.completion),
        }
    };
    let Tokens { prompt, cached_prompt, completion } = parts(charged, total);
    let less = Tokens { prompt: -prompt, cached_prompt: -cached_prompt, completion: -completion };
    CallRest { more: parts(total, charged), less }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_the_difference_of_each_kind_of_tokens() {
        // Prompt, cached part of it, completion.
        let cases = [
            // Total, charged, more, less.
            ([9, 0, 50], [9, 0, 20], [0, 0, 30], [0, 0, 0]),
            ([9, 0, 50], [9, 0, 50], [0, 0, 0], [0, 0, 0]),
            ([9, 0, 50], [0, 0, 0], [9, 0, 50], [0, 0, 0]),
            // Estimates were too high.
            ([9, 0, 15], [12, 0, 20], [0, 0, 0], [-3, 0, -5]),
            ([9, 0, 25], [12, 0, 20], [0, 0, 5], [-3, 0, 0]),
            // That 600 were cached was said only at the end.
            ([1_000, 600, 50], [1_000, 0, 20], [600, 600, 30], [-600, 0, 0]),
            ([1_000, 600, 50], [1_000, 600, 20], [0, 0, 30], [0, 0, 0]),
            ([1_000, 0, 50], [1_000, 600, 50], [600, 0, 0], [-600, -600, 0]),
        ];
        let tokens =
            |[prompt, cached_prompt, completion]: [i64; 3]| Tokens { prompt, cached_prompt, completion };
        for (total, charged, more, less) in cases {
            let due = CallRest { more: tokens(more), less: tokens(less) };
            assert_eq!(call_rest(tokens(total), tokens(charged)), due, "{total:?} {charged:?}");
        }
    }
}
