//! Volume discounts (docs/contract/billing.md#volume-discounts): graduated, for each organization, model and
//! kind of tokens, in a calendar month.
//!
//! Tokens are counted in the order of their day, then of the effective time of their price, then of the
//! price, lowest first. Tokens between a threshold and the next one are discounted by the threshold's
//! fraction. So if a price changes within the month, the discount covers exactly the tokens that were above
//! the threshold. Components that aren't tokens, such as requests and images, have no discount.

use crate::{Component, Kind, VolumeDiscount};
use kernel::clock::{Day, Time};
use kernel::money::{Nano, Pico};

/// A kind of tokens. Each kind is counted separately.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TokenKind {
    /// Input of a chat model.
    Prompt,
    /// Output of a chat model.
    Completion,
    /// Input of an embedding model.
    Input,
}

impl TokenKind {
    /// Returns the kind of tokens that a component of a model's price counts as; `None` for components that
    /// aren't tokens.
    pub const fn of(component: Component, kind: Kind) -> Option<Self> {
        match component.tokens() {
            Some(Component::Prompt) => Some(Self::of_prompt(kind)),
            Some(_) => Some(Self::Completion),
            None => None,
        }
    }

    /// Returns the kind of the prompt's tokens for a model of this kind.
    pub const fn of_prompt(kind: Kind) -> Self {
        match kind {
            Kind::Chat => Self::Prompt,
            Kind::Embeddings => Self::Input,
        }
    }

    /// Returns the name on an invoice.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Prompt => "prompt tokens",
            Self::Completion => "completion tokens",
            Self::Input => "input tokens",
        }
    }
}

/// Tokens of one model and kind that were used on one day, at one price; negative in corrections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenUse {
    pub day: Day,
    /// The time from which the tokens' price is in force.
    pub effective_at: Time,
    pub count: i64,
    pub unit_price: Pico,
}

/// The unit of fractions, one millionth. Discounts are therefore summed in millionths of a pico.
const PPM: i128 = 1_000_000;

/// Returns the discount on a month's tokens of one model and kind, rounded up to whole pico in the customer's
/// favor.
///
/// `tiers` has the lowest threshold first. Returns `None` if a sum overflows 128 bits.
pub fn discount(tiers: &[VolumeDiscount], tokens: &[TokenUse]) -> Option<Pico> {
    let mut tokens = tokens.to_vec();
    tokens.sort_by_key(|used| (used.day, used.effective_at, used.unit_price));
    let (mut before, mut sum) = (0_i128, 0_i128);
    for used in tokens {
        let after = before.checked_add(i128::from(used.count))?;
        let fractions = discounted(tiers, after)?.checked_sub(discounted(tiers, before)?)?;
        sum = sum.checked_add(fractions.checked_mul(used.unit_price.units())?)?;
        before = after;
    }
    // A late correction at a higher price could otherwise take back more than the discount that was given.
    let sum = sum.max(0);
    Some(Pico::from_units(sum.checked_add(PPM - 1)? / PPM))
}

/// Returns the discount on the first `count` tokens, in millionths of a token's price: the sum of the
/// fractions of the tokens above the thresholds.
fn discounted(tiers: &[VolumeDiscount], count: i128) -> Option<i128> {
    let ends = tiers.iter().skip(1).map(|next| i128::from(next.threshold)).chain([i128::MAX]);
    let mut sum = 0_i128;
    for (tier, end) in tiers.iter().zip(ends) {
        let within = (count.min(end) - i128::from(tier.threshold)).max(0);
        sum = sum.checked_add(within.checked_mul(tier.discount.units())?)?;
    }
    Some(sum)
}

/// Returns the whole nanos that are credited for a discount: rounded up in the customer's favor, but at most
/// the charged amount. The result is negative if a discount is taken back.
pub fn credited(discount: Pico, charged: Nano) -> Nano {
    discount.ceil_nano().min(charged.max(Nano::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::money::Ppm;
    use proptest::prelude::*;

    fn tiers(tiers: &[(i64, i128)]) -> Vec<VolumeDiscount> {
        let tier = |(threshold, ppm): &(i64, i128)| VolumeDiscount {
            threshold: *threshold,
            discount: Ppm::from_units(*ppm),
        };
        tiers.iter().map(tier).collect()
    }

    fn tokens(day: i64, count: i64, price: i128) -> TokenUse {
        let (day, unit_price) = (Day::from_unix_days(day), Pico::from_units(price));
        let effective_at = Time::from_unix_ms(i64::try_from(price).unwrap());
        TokenUse { day, effective_at, count, unit_price }
    }

    #[test]
    fn invoice_names_the_tokens() {
        let words =
            [TokenKind::of_prompt(Kind::Chat), TokenKind::Completion, TokenKind::of_prompt(Kind::Embeddings)];
        assert_eq!(words.map(TokenKind::label), ["prompt tokens", "completion tokens", "input tokens"]);
    }

    #[test]
    fn tokens_above_a_threshold_cost_less() {
        // Above 100 tokens, the discount is a tenth; above 200, it is a half.
        let two = tiers(&[(100, 100_000), (200, 500_000)]);
        let cases: [(&[TokenUse], i128); 11] = [
            (&[], 0),
            (&[tokens(1, 100, 10)], 0),
            (&[tokens(1, 101, 10)], 1),
            (&[tokens(1, 200, 10)], 100),
            (&[tokens(1, 201, 10)], 105),
            (&[tokens(1, 100, 10), tokens(2, 100, 10)], 100),
            // The price changes on day 2: 50 discounted tokens at the first price, and 50 at the second.
            (&[tokens(1, 150, 10), tokens(2, 50, 20)], 50 + 100),
            // The order of the usage doesn't matter.
            (&[tokens(2, 50, 20), tokens(1, 150, 10)], 50 + 100),
            // With 101 tokens at a price of 3, three tenths of a pico are rounded up to one.
            (&[tokens(1, 101, 3)], 1),
            // A correction takes back the discount.
            (&[tokens(1, 200, 10), tokens(2, -100, 10)], 0),
            (&[tokens(1, -50, 10), tokens(2, 200, 10)], 50),
        ];
        for (used, expected) in cases {
            assert_eq!(discount(&two, used).map(Pico::units), Some(expected), "{used:?}");
        }
        assert_eq!(discount(&[], &[tokens(1, i64::MAX, 1)]), Some(Pico::ZERO));
        let dear = Pico::from_units(i128::MAX / 2);
        let too_much = TokenUse { unit_price: dear, ..tokens(1, i64::MAX, 1) };
        assert_eq!(discount(&two, &[too_much]), None);
    }

    #[test]
    fn credit_never_exceeds_the_charge() {
        let credited = |pico, nano| super::credited(Pico::from_units(pico), Nano::from_units(nano)).units();
        assert_eq!((credited(1, 5), credited(1_000, 5), credited(1_001, 5)), (1, 1, 2));
        assert_eq!((credited(1_500, 1), credited(0, 5), credited(1, 0), credited(1, -3)), (1, 0, 0, 0));
    }

    fn some_tiers() -> impl Strategy<Value = Vec<VolumeDiscount>> {
        prop::collection::btree_map(0_i64..60, 0_i128..=1_000_000, 0..4)
            .prop_map(|map| tiers(&map.into_iter().collect::<Vec<_>>()))
    }

    fn some_tokens(counts: std::ops::Range<i64>) -> impl Strategy<Value = Vec<TokenUse>> {
        prop::collection::vec((0_i64..5, counts, 0_i128..50), 0..6)
            .prop_map(|all| all.into_iter().map(|(day, count, price)| tokens(day, count, price)).collect())
    }

    proptest! {
        #[test]
        fn equals_a_count_token_by_token(tiers in some_tiers(), used in some_tokens(0..40)) {
            let mut sorted = used.clone();
            sorted.sort_by_key(|tokens| (tokens.day, tokens.effective_at));
            let (mut number, mut parts) = (0_i64, 0_i128);
            for tokens in sorted {
                for _ in 0..tokens.count {
                    let tier = tiers.iter().rev().find(|tier| tier.threshold <= number);
                    parts += tier.map_or(0, |tier| tier.discount.units()) * tokens.unit_price.units();
                    number += 1;
                }
            }
            prop_assert_eq!(discount(&tiers, &used).unwrap().units(), (parts + 999_999) / 1_000_000);
        }

        #[test]
        fn is_never_negative_and_never_more_than_the_price(tiers in some_tiers(), used in some_tokens(-40..40)) {
            let less = discount(&tiers, &used).unwrap().units();
            prop_assert!(less >= 0);
            if used.iter().all(|tokens| tokens.count >= 0) {
                let list: i128 = used.iter().map(|t| i128::from(t.count) * t.unit_price.units()).sum();
                prop_assert!(less <= list, "{} {}", less, list);
            }
        }

        #[test]
        fn grows_with_what_is_used(tiers in some_tiers(), mut used in some_tokens(0..40), more in 0_i64..40) {
            let before = discount(&tiers, &used).unwrap();
            // These tokens are used on the last day and at the highest price, so they don't move other usage
            // between tiers.
            used.push(tokens(9, more, 60));
            prop_assert!(discount(&tiers, &used).unwrap() >= before);
        }

        #[test]
        fn never_panics(tiers in some_tiers(), count in any::<i64>(), price in any::<i64>()) {
            let used = TokenUse { unit_price: Pico::from_units(price.into()), ..tokens(0, count, 0) };
            let _discount = discount(&tiers, &[used, used]);
        }
    }
}
