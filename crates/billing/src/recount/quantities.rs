//! Quantities by name: tokens, and the components that are counted in addition to them
//! (docs/contract/billing.md#components).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::pico;
use kernel::clock::Day;

/// Parts of the prompt. Cached tokens have their own column, which is older than parts.
const OF_PROMPT: [&str; 4] = ["cache_write_5m", "cache_write_1h", "audio_prompt", "image_prompt"];
const OF_COMPLETION: [&str; 2] = ["reasoning", "audio_completion"];
/// Components that aren't a part of another one.
const PIECES: [&str; 5] = [REQUEST, "image", "second", "character", "search"];

/// A single call, for models with a price per call.
pub const REQUEST: &str = "request";

/// The whole that a part belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    Prompt,
    Completion,
    /// The component isn't a part of another one.
    None,
}

/// Returns the whole that a part belongs to; `None` for a name that isn't a part.
pub fn whole_of(part: &str) -> Option<Whole> {
    match part {
        _ if OF_PROMPT.contains(&part) => Some(Whole::Prompt),
        _ if OF_COMPLETION.contains(&part) => Some(Whole::Completion),
        _ if PIECES.contains(&part) => Some(Whole::None),
        _ => None,
    }
}

/// Numbers by part: nonzero quantities, or prices in picos.
pub type ByPart = BTreeMap<String, i128>;

/// The letters of parts in stored events.
const LETTERS: [(char, &str); 11] = [
    ('w', "cache_write_5m"),
    ('h', "cache_write_1h"),
    ('a', "audio_prompt"),
    ('i', "image_prompt"),
    ('r', "reasoning"),
    ('o', "audio_completion"),
    ('q', REQUEST),
    ('m', "image"),
    ('s', "second"),
    ('c', "character"),
    ('f', "search"),
];

/// Parses stored numbers, such as `r30f2` of an event, or `reasoning:30 search:2` of a price or an earlier
/// event.
pub fn parse(text: &str) -> Result<ByPart, db::Error> {
    let wrong = || db::Error::Internal(format!("the parts of usage or of a price are {text:?}"));
    let number = |digits: &str| digits.parse::<i64>().ok().map(i128::from);
    let named = |word: &str| {
        let (name, digits) = word.split_once(':')?;
        whole_of(name)?;
        Some((name.to_owned(), number(digits)?))
    };
    let lettered = |word: &str| {
        let (_, name) = LETTERS.into_iter().find(|(letter, _)| word.starts_with(*letter))?;
        Some((name.to_owned(), number(word.get(1..)?)?))
    };
    if text.contains(':') {
        return text.split_whitespace().map(|word| named(word).ok_or_else(wrong)).collect();
    }
    // Each letter begins a word.
    let spaced: String =
        text.chars().flat_map(|c| c.is_alphabetic().then_some(' ').into_iter().chain([c])).collect();
    spaced.split_whitespace().map(|word| lettered(word).ok_or_else(wrong)).collect()
}

/// Tokens and other components. The tokens of the prompt include the cached tokens and the parts of the
/// prompt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quantities {
    pub prompt: i128,
    pub cached: i128,
    pub completion: i128,
    pub parts: ByPart,
}

impl Quantities {
    /// Adds other quantities, multiplied by this number.
    pub fn add(&mut self, other: &Self, times: i128) {
        self.prompt += times * other.prompt;
        self.cached += times * other.cached;
        self.completion += times * other.completion;
        for (name, quantity) in &other.parts {
            self.add_part(name, times * quantity);
        }
    }

    /// Adds to the quantity of a part.
    pub fn add_part(&mut self, name: &str, quantity: i128) {
        match self.parts.entry(name.to_owned()) {
            Entry::Vacant(new) if quantity != 0 => {
                new.insert(quantity);
            }
            Entry::Vacant(_) => (),
            Entry::Occupied(mut sum) => {
                *sum.get_mut() += quantity;
                if *sum.get() == 0 {
                    sum.remove();
                }
            }
        }
    }

    /// Returns the quantity of a part.
    pub fn part(&self, name: &str) -> i128 {
        self.parts.get(name).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Quantities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { prompt, cached, completion, parts } = self;
        write!(f, "{prompt} ({cached} cached) + {completion} tokens")?;
        parts.iter().try_for_each(|(name, quantity)| write!(f, ", {name} {quantity}"))
    }
}

/// The key of usage with one price: its day, model, kind and price version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UseKey {
    pub day: Day,
    pub model: String,
    pub kind: String,
    pub version: i64,
}

impl std::fmt::Display for UseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { day, model, kind, version } = self;
        write!(f, "{day} {model} {kind} price {version}")
    }
}

/// Quantities, and their cost in picos.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub quantities: Quantities,
    pub amount: i128,
}

impl Used {
    pub fn add(&mut self, other: &Self) {
        self.quantities.add(&other.quantities, 1);
        self.amount = self.amount.saturating_add(other.amount);
    }
}

impl std::fmt::Display for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.quantities, pico(self.amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_parts_are_read() {
        let parts = parse("reasoning:30 search:-2").unwrap();
        assert_eq!(parts, [("reasoning".to_owned(), 30), ("search".to_owned(), -2)].into());
        assert_eq!(parse("r30f-2").unwrap(), parts);
        assert_eq!(parse("").unwrap(), ByPart::default());
        for wrong in ["prompt:1", "search", "search:", "search:x", "x:1", "r", "30", "1r30", "x30", "r3 0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sums_have_no_parts_of_nothing() {
        let one =
            Quantities { prompt: 5, parts: parse("search:2 image:1").unwrap(), ..Quantities::default() };
        let mut sum = one.clone();
        sum.add(&Quantities { parts: parse("search:1").unwrap(), ..one.clone() }, -2);
        assert_eq!((sum.prompt, sum.part("search"), sum.part("image")), (-5, 0, 1));
        assert_eq!(sum.parts.len(), 1);
    }
}
