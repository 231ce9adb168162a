//! The costs of routes.

use std::collections::BTreeMap;

use kernel::document::values::Table;
use kernel::document::{Spanned, did_you_mean};
use kernel::money::Pico;

use super::Rules;
use super::prices::{TokenPrice, is_too_dear};
use crate::{BEGINNING, Component, ComponentPrices, Kind, MAX_CALL_PRICE, PartPrices, Price};

/// The table `cost` of a route, with costs by component name; see [`ComponentPrices`].
pub type CostEntry = Table<BTreeMap<String, Spanned<TokenPrice>>>;

/// The model of a route whose cost is read.
#[derive(Clone, Copy)]
pub struct CostPlace<'a> {
    /// The name of the model in messages about mistakes.
    pub label: &'a str,
    pub kind: Kind,
    /// Maximum number of tokens of one request.
    pub max_tokens: i64,
    /// The line of the route.
    pub line: usize,
}

impl Rules<'_> {
    /// Checks the cost of a route by the rules for prices.
    pub(super) fn cost(&mut self, Table(entries): CostEntry, place: CostPlace<'_>) -> ComponentPrices {
        let CostPlace { label, kind, max_tokens, line } = place;
        let mut costs: BTreeMap<Component, (usize, Pico)> = BTreeMap::new();
        for (name, entry) in entries {
            let line = self.line(&entry);
            let Ok(component) = name.parse::<Component>() else {
                self.refuse(line, &format!("{label}: `routes`: {}", unknown_component(&name)));
                continue;
            };
            costs.insert(component, (line, entry.into_inner().0));
        }
        let needed: &[Component] = match kind {
            Kind::Chat => &[Component::Prompt, Component::Completion],
            Kind::Embeddings => &[Component::Prompt],
        };
        for component in needed.iter().filter(|component| !costs.contains_key(component)) {
            let name = component.as_str();
            self.refuse(line, &format!("{label}: `routes`: the key `cost.{name}` is missing"));
        }
        let prompt = costs.get(&Component::Prompt).map(|(_, cost)| *cost);
        for (component, (line, cost)) in &costs {
            let why = match component {
                // Zero is allowed, as for prices.
                Component::Completion if *cost == Pico::ZERO => None,
                _ if !component.is_possible(kind) => Some("embedding models don't have it: remove the key"),
                Component::CachedPrompt if prompt.is_some_and(|prompt| *cost > prompt) => {
                    Some("it is more than `cost.prompt`")
                }
                _ => None,
            };
            if let Some(why) = why {
                let name = component.as_str();
                self.refuse(*line, &format!("{label}: `routes`: `cost.{name}`: {why}"));
            }
        }
        let of = |component: Component| costs.get(&component).map(|(_, cost)| *cost);
        let mut parts = PartPrices::default();
        for part in Component::PARTS {
            parts.set(part, of(part));
        }
        let cost = ComponentPrices {
            prompt: of(Component::Prompt).unwrap_or_default(),
            cached_prompt: of(Component::CachedPrompt),
            completion: of(Component::Completion).unwrap_or_default(),
            parts,
        };
        if is_too_dear(&Price::new(BEGINNING, cost), max_tokens) {
            let why = format!(
                "`cost`: a call can cost at most {MAX_CALL_PRICE}, but a call with {max_tokens} input and \
                 output tokens would cost more: lower the cost, or `max_tokens`"
            );
            self.refuse(line, &format!("{label}: `routes`: {why}"));
        }
        cost
    }
}

fn unknown_component(name: &str) -> String {
    let names = Component::ALL.iter().map(|component| component.as_str());
    let hint = did_you_mean(name, names.clone());
    let known: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    format!("`cost` has no component `{name}`{hint}: known are {}", known.join(", "))
}

#[cfg(test)]
mod tests;
