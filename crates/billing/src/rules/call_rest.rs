//! The remaining charge of a call that was charged in part
//! (docs/contract/gateway.md#what-a-killed-server-costs).

use catalog::{Component, Parts, Tokens};

/// The tokens by which the charge of a call is too low, and those by which it is too high.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallRest {
    /// The tokens that still have to be charged.
    pub to_charge: Tokens,
    /// The tokens that have to be refunded, as negative counts.
    pub to_refund: Tokens,
}

/// Returns the difference between the tokens of a call and the charged ones. Each component may have a
/// separate price, so components are compared one by one. If the price differs from the charged one,
/// everything is refunded and charged again.
pub fn call_rest(total: Tokens, charged: Tokens, is_same_price: bool) -> CallRest {
    let negative = |tokens: Tokens| tokens.checked_neg().unwrap_or_default();
    if !is_same_price {
        return CallRest { to_charge: total, to_refund: negative(charged) };
    }
    CallRest { to_charge: excess(total, charged), to_refund: negative(excess(charged, total)) }
}

/// Returns the quantity of each component by which `one` exceeds `other`.
fn excess(one: Tokens, other: Tokens) -> Tokens {
    let more = |one: i64, other: i64| one.saturating_sub(other).max(0);
    let rests = |tokens: Tokens| {
        (tokens.rest_of_prompt().unwrap_or_default(), tokens.rest_of_completion().unwrap_or_default())
    };
    let mut parts = Parts::default();
    for part in Component::PARTS {
        parts.set(part, more(one.parts.get(part), other.parts.get(part)));
    }
    let cached_prompt = more(one.cached_prompt, other.cached_prompt);
    let ((prompt, completion), (less_prompt, less_completion)) = (rests(one), rests(other));
    let with_parts = |rest: i64, whole| rest.saturating_add(parts.sum_of(whole).unwrap_or_default());
    Tokens {
        prompt: with_parts(more(prompt, less_prompt), Component::Prompt).saturating_add(cached_prompt),
        cached_prompt,
        completion: with_parts(more(completion, less_completion), Component::Completion),
        parts,
    }
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
            // The 600 cached tokens were reported only at the end.
            ([1_000, 600, 50], [1_000, 0, 20], [600, 600, 30], [-600, 0, 0]),
            ([1_000, 600, 50], [1_000, 600, 20], [0, 0, 30], [0, 0, 0]),
            ([1_000, 0, 50], [1_000, 600, 50], [600, 0, 0], [-600, -600, 0]),
        ];
        let tokens =
            |[prompt, cached_prompt, completion]: [i64; 3]| Tokens::new(prompt, cached_prompt, completion);
        for (total, charged, more, less) in cases {
            let due = CallRest { to_charge: tokens(more), to_refund: tokens(less) };
            assert_eq!(call_rest(tokens(total), tokens(charged), true), due, "{total:?} {charged:?}");
        }
    }

    #[test]
    fn parts_are_compared_each_by_itself() {
        let tokens = |prompt, completion, written: i64, reasoning: i64| {
            let parts = Parts::default()
                .with(Component::CacheWrite5m, written)
                .with(Component::Reasoning, reasoning)
                .with(Component::Request, 1);
            Tokens { parts, ..Tokens::new(prompt, 0, completion) }
        };
        let without_request =
            |tokens: Tokens| Tokens { parts: tokens.parts.with(Component::Request, 0), ..tokens };
        // Charged before the answer reported that 600 tokens were written to the cache and 30 of 50 were
        // reasoning.
        let (total, charged) = (tokens(1_000, 50, 600, 30), tokens(1_000, 20, 0, 0));
        let rest = call_rest(total, charged, true);
        assert_eq!(rest.to_charge, without_request(tokens(600, 30, 600, 30)));
        assert_eq!(rest.to_refund, Tokens::new(-600, 0, 0));
        // At another price, everything is taken back and charged again.
        let rest = call_rest(total, charged, false);
        assert_eq!((rest.to_charge, rest.to_refund), (total, charged.checked_neg().unwrap()));
    }
}
