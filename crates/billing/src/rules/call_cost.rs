//! The operator's cost of a call (docs/operations.md#costs-and-margins).

use catalog::{Component, ComponentPrices, MAX_CALL_PRICE, Price, Tokens};
use kernel::money::Pico;

/// The list price of a call, and its cost to the operator.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PriceAndCost {
    pub price: Pico,
    pub cost: Pico,
}

/// Returns the list price and the cost of one whole call with these quantities, including the request itself.
///
/// Returns `None` if one of them exceeds the maximum of a call, because such a price is refused and such a
/// cost can't be recorded.
pub fn price_and_cost(price: &Price, costs: &ComponentPrices, tokens: Tokens) -> Option<PriceAndCost> {
    let tokens = Tokens { parts: tokens.parts.with(Component::Request, 1), ..tokens };
    let limited = |amount: Option<Pico>| amount.filter(|amount| *amount <= MAX_CALL_PRICE);
    let (price, cost) = (limited(catalog::rate(price, tokens))?, limited(costs.rate(tokens))?);
    Some(PriceAndCost { price, cost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{BEGINNING, PartPrices, Parts};

    fn pico(units: i128) -> Pico {
        Pico::from_units(units)
    }

    fn rates(prompt: i128, completion: i128) -> ComponentPrices {
        ComponentPrices { prompt: pico(prompt), completion: pico(completion), ..ComponentPrices::default() }
    }

    #[test]
    fn cost_is_of_the_same_quantities_as_the_price() {
        let tokens = Tokens {
            parts: Parts::default().with(Component::Reasoning, 4).with(Component::Search, 2),
            ..Tokens::new(10, 3, 6)
        };
        let of = |price: ComponentPrices, costs: ComponentPrices| {
            let found = price_and_cost(&Price::new(BEGINNING, price), &costs, tokens);
            found.map(|PriceAndCost { price, cost }| (price.units(), cost.units()))
        };
        // A part without a price or a cost costs as much as its whole, and pieces without one cost nothing:
        // 10 x 5 + 6 x 7 = 92, and 10 x 2 + 6 x 3 = 38.
        assert_eq!(of(rates(5, 7), rates(2, 3)), Some((92, 38)));
        // 7 x 2 + 3 x 1 + 2 x 3 + 4 x 9 + 1 x 100 + 2 x 1,000 = 2,159.
        let parts = PartPrices::default()
            .with(Component::Reasoning, Some(pico(9)))
            .with(Component::Request, Some(pico(100)))
            .with(Component::Search, Some(pico(1_000)))
            .with(Component::Image, Some(pico(1_000_000)));
        let costs = ComponentPrices { cached_prompt: Some(pico(1)), parts, ..rates(2, 3) };
        assert_eq!(of(rates(5, 7), costs), Some((92, 2_159)));
        // The price may have parts that the cost doesn't: 10 x 2 + 2 x 3 + 4 x 9 + 100 + 2,000.
        assert_eq!(of(ComponentPrices { cached_prompt: None, ..costs }, rates(2, 3)), Some((2_162, 38)));
        // A cost that is too large to record is dropped.
        let most = MAX_CALL_PRICE.units();
        assert_eq!(of(rates(5, 7), rates(most / 10, 0)), Some((92, most)));
        assert_eq!(of(rates(5, 7), rates(most / 10, 1)), None);
        assert_eq!(of(rates(most, 7), rates(2, 3)), None);
        assert_eq!(of(rates(5, 7), rates(i128::MAX, 3)), None);
    }
}
