//! The components of a price, and the quantities of a call (docs/contract/billing.md#components).

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::Kind;
use kernel::money::Pico;

/// A component of a price. The variants are in the order of an invoice's lines.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Component {
    Prompt,
    CachedPrompt,
    /// Tokens written to a cache that keeps them for five minutes, or for an unknown time.
    #[strum(serialize = "cache_write_5m")]
    CacheWrite5m,
    /// Tokens written to a cache that keeps them for an hour.
    #[strum(serialize = "cache_write_1h")]
    CacheWrite1h,
    AudioPrompt,
    ImagePrompt,
    Completion,
    Reasoning,
    AudioCompletion,
    /// A call.
    Request,
    /// A generated image.
    Image,
    /// A second of audio or video, rounded up for each call.
    Second,
    Character,
    /// A search that the upstream made for an answer.
    Search,
}

impl Component {
    /// Every component.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The components that are counted in [`Parts`]: all except prompt, cached prompt and completion, which
    /// every event has.
    pub const PARTS: [Self; PARTS] = [
        Self::CacheWrite5m,
        Self::CacheWrite1h,
        Self::AudioPrompt,
        Self::ImagePrompt,
        Self::Reasoning,
        Self::AudioCompletion,
        Self::Request,
        Self::Image,
        Self::Second,
        Self::Character,
        Self::Search,
    ];

    /// Returns the name in files, requests and the database.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the component whose tokens include this component; `None` for a component that isn't a part.
    pub const fn whole(self) -> Option<Self> {
        match self {
            Self::CachedPrompt
            | Self::CacheWrite5m
            | Self::CacheWrite1h
            | Self::AudioPrompt
            | Self::ImagePrompt => Some(Self::Prompt),
            Self::Reasoning | Self::AudioCompletion => Some(Self::Completion),
            Self::Prompt
            | Self::Completion
            | Self::Request
            | Self::Image
            | Self::Second
            | Self::Character
            | Self::Search => None,
        }
    }

    /// Returns the kind of tokens as which the component counts for volume discounts; `None` for components
    /// that aren't tokens, which have no discount.
    pub const fn tokens(self) -> Option<Self> {
        match self.whole() {
            Some(whole) => Some(whole),
            None => match self {
                Self::Prompt | Self::Completion => Some(self),
                _ => None,
            },
        }
    }

    /// Returns `true` if a call to a model of this kind can have this component.
    pub const fn is_possible(self, kind: Kind) -> bool {
        match kind {
            Kind::Chat => true,
            Kind::Embeddings => !matches!(
                self,
                Self::CachedPrompt
                    | Self::CacheWrite5m
                    | Self::CacheWrite1h
                    | Self::Completion
                    | Self::Reasoning
                    | Self::AudioCompletion
                    | Self::Search
            ),
        }
    }

    /// Returns the name on an invoice.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Prompt => "prompt tokens",
            Self::CachedPrompt => "cached prompt tokens",
            Self::CacheWrite5m => "tokens written to the cache",
            Self::CacheWrite1h => "tokens written to the cache for an hour",
            Self::AudioPrompt => "audio tokens of prompts",
            Self::ImagePrompt => "image tokens of prompts",
            Self::Completion => "completion tokens",
            Self::Reasoning => "reasoning tokens",
            Self::AudioCompletion => "audio tokens of completions",
            Self::Request => "requests",
            Self::Image => "images",
            Self::Second => "seconds",
            Self::Character => "characters",
            Self::Search => "searches",
        }
    }

    /// Returns the letter of a part in a stored event; `None` if it isn't a part. Letters never change.
    const fn code(self) -> Option<char> {
        match self {
            Self::CacheWrite5m => Some('w'),
            Self::CacheWrite1h => Some('h'),
            Self::AudioPrompt => Some('a'),
            Self::ImagePrompt => Some('i'),
            Self::Reasoning => Some('r'),
            Self::AudioCompletion => Some('o'),
            Self::Request => Some('q'),
            Self::Image => Some('m'),
            Self::Second => Some('s'),
            Self::Character => Some('c'),
            Self::Search => Some('f'),
            Self::Prompt | Self::CachedPrompt | Self::Completion => None,
        }
    }

    /// Returns the part with this letter.
    fn from_code(code: char) -> Option<Self> {
        Self::PARTS.into_iter().find(|part| part.code() == Some(code))
    }

    /// Returns the index of the component's value in a [`PerPart`]; `None` if it isn't a part.
    const fn slot(self) -> Option<usize> {
        match self {
            Self::Prompt | Self::CachedPrompt | Self::Completion => None,
            part => Some(part as usize),
        }
    }
}

const PARTS: usize = 11;
const COMPONENTS: usize = 14;

/// A value for each component of [`Component::PARTS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PerPart<T>(
    /// The values, indexed by the number of the component. Components that aren't parts keep the default.
    [T; COMPONENTS],
);

/// The quantity of each part in a call; negative in corrections.
pub type Parts = PerPart<i64>;

/// The price of each part; `None` for parts without a separate price.
pub type PartPrices = PerPart<Option<Pico>>;

impl<T: Copy + Default + PartialEq> PerPart<T> {
    /// Returns the value of a part, or the default for components that aren't parts.
    pub fn get(&self, component: Component) -> T {
        component.slot().and_then(|slot| self.0.get(slot)).copied().unwrap_or_default()
    }

    /// Sets the value of a part; does nothing for components that aren't parts.
    pub fn set(&mut self, component: Component, value: T) {
        if let Some(place) = component.slot().and_then(|slot| self.0.get_mut(slot)) {
            *place = value;
        }
    }

    /// Returns a copy with this value for this part.
    #[must_use]
    pub fn with(mut self, component: Component, value: T) -> Self {
        self.set(component, value);
        self
    }

    /// Returns the parts whose value isn't the default, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Component, T)> + '_ {
        // Most calls have no parts, and are checked several times.
        let values = if self.is_empty() { &[][..] } else { &self.0[..] };
        let all = Component::ALL.iter().zip(values);
        all.filter(|(_, value)| **value != T::default()).map(|(part, value)| (*part, *value))
    }

    /// Returns `true` if every part has the default value.
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(true, |is_empty, value| is_empty & (*value == T::default()))
    }

    /// Returns the stored form of the parts, such as `cache_write_5m:12 reasoning:30`.
    fn text_of(&self, number: impl Fn(T) -> String) -> String {
        let mut text = String::with_capacity(48);
        for (part, value) in self.iter() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(part.as_str());
            text.push(':');
            text.push_str(&number(value));
        }
        text
    }

    fn parse_with(text: &str, number: impl Fn(i64) -> T) -> Option<Self> {
        let mut parts = Self::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once(':')?;
            let slot = name.parse::<Component>().ok()?.slot()?;
            *parts.0.get_mut(slot)? = number(value.parse().ok()?);
        }
        Some(parts)
    }
}

impl Parts {
    /// Returns the sum of each part; `None` if a sum exceeds 64 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let mut sums = self;
        for (sum, more) in sums.0.iter_mut().zip(other.0) {
            *sum = sum.checked_add(more)?;
        }
        Some(sums)
    }

    /// Returns the negated quantities; `None` if one of them exceeds 64 bits.
    pub fn checked_neg(self) -> Option<Self> {
        let mut negative = self;
        for quantity in &mut negative.0 {
            *quantity = quantity.checked_neg()?;
        }
        Some(negative)
    }

    /// Returns the sum of the parts of these tokens; `None` if it exceeds 64 bits.
    pub fn sum_of(&self, whole: Component) -> Option<i64> {
        self.iter()
            .filter(|(part, _)| part.whole() == Some(whole))
            .try_fold(0_i64, |sum, (_, quantity)| sum.checked_add(quantity))
    }

    /// Returns the stored form of the quantities; `None` if all are zero.
    pub fn to_text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.text_of(|quantity| quantity.to_string()))
    }

    /// Returns the short form of the quantities for stored events, such as `w12r30`; `None` if all are zero.
    /// The form is short because most rows of the database are events.
    pub fn to_codes(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut text = String::with_capacity(16);
        for (part, quantity) in self.iter() {
            text.extend(part.code());
            text.push_str(&quantity.to_string());
        }
        Some(text)
    }

    /// Parses the output of [`to_text`](Self::to_text) or [`to_codes`](Self::to_codes); returns `None` for
    /// any other text.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains(':') { Self::parse_with(text, |quantity| quantity) } else { Self::parse_codes(text) }
    }

    fn parse_codes(text: &str) -> Option<Self> {
        let (mut parts, mut rest) = (Self::default(), text);
        while let Some(code) = rest.chars().next() {
            let part = Component::from_code(code)?;
            let number = rest.strip_prefix(code)?;
            let end = number.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(number.len());
            let (number, after) = number.split_at_checked(end)?;
            *parts.0.get_mut(part.slot()?)? = number.parse().ok()?;
            rest = after;
        }
        Some(parts)
    }
}

/// The parts of an event. Most events have no parts, and batches contain many events, so the value takes a
/// single machine word.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventParts(Option<Box<Parts>>);

impl From<Parts> for EventParts {
    fn from(parts: Parts) -> Self {
        Self((!parts.is_empty()).then(|| Box::new(parts)))
    }
}

impl EventParts {
    /// Returns the quantities.
    pub fn to_parts(&self) -> Parts {
        self.0.as_deref().copied().unwrap_or_default()
    }

    /// Returns the stored form of the quantities, like [`Parts::to_codes`].
    pub fn to_codes(&self) -> Option<String> {
        self.0.as_deref().and_then(Parts::to_codes)
    }

    /// Returns the quantities in the form of [`Parts::to_text`].
    pub fn to_text(&self) -> Option<String> {
        self.0.as_deref().and_then(Parts::to_text)
    }
}

impl PartPrices {
    /// Returns the stored form of the prices, in pico; `None` if no part has a price.
    pub fn to_text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.text_of(|price| price.unwrap_or_default().units().to_string()))
    }

    /// Parses the output of [`to_text`](Self::to_text); returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_with(text, |pico| Some(Pico::from_units(pico.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_components_but_three() {
        let basic = [Component::Prompt, Component::CachedPrompt, Component::Completion];
        let parts: Vec<_> = Component::ALL.iter().copied().filter(|one| !basic.contains(one)).collect();
        assert_eq!(parts, Component::PARTS);
        let names: Vec<_> = Component::ALL.iter().map(|one| one.as_str()).collect();
        let expected = [
            "prompt",
            "cached_prompt",
            "cache_write_5m",
            "cache_write_1h",
            "audio_prompt",
            "image_prompt",
            "completion",
            "reasoning",
            "audio_completion",
            "request",
            "image",
            "second",
            "character",
            "search",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn stored_text_is_read_back() {
        let parts = Parts::default().with(Component::Search, 3).with(Component::CacheWrite5m, -12);
        assert_eq!(parts.to_text().as_deref(), Some("cache_write_5m:-12 search:3"));
        assert_eq!(Parts::parse("cache_write_5m:-12 search:3"), Some(parts));
        assert_eq!((Parts::default().to_text(), Parts::parse("")), (None, Some(Parts::default())));
        assert_eq!((parts.to_codes().as_deref(), Parts::default().to_codes()), (Some("w-12f3"), None));
        assert_eq!(Parts::parse("w-12f3"), Some(parts));
        for wrong in
            ["prompt:1", "search", "search:", "search:x", "tokens:1", "w", "w-", "p1", "w1 f3", "W1", "1"]
        {
            assert_eq!(Parts::parse(wrong), None, "{wrong}");
        }
        let free = PartPrices::default().with(Component::Reasoning, Some(Pico::ZERO));
        assert_eq!(free.to_text().as_deref(), Some("reasoning:0"));
        assert_eq!(PartPrices::parse("reasoning:0"), Some(free));
    }

    #[test]
    fn codes_never_change() {
        let all = Component::PARTS.iter().zip(1..);
        let parts = all.fold(Parts::default(), |parts, (part, quantity)| parts.with(*part, quantity));
        assert_eq!(parts.to_codes().as_deref(), Some("w1h2a3i4r5o6q7m8s9c10f11"));
        assert_eq!(Parts::parse("w1h2a3i4r5o6q7m8s9c10f11"), Some(parts));
    }

    #[test]
    fn sums_are_of_the_parts_of_one_whole() {
        let parts = Parts::default()
            .with(Component::CacheWrite5m, 10)
            .with(Component::AudioPrompt, 5)
            .with(Component::Reasoning, 7)
            .with(Component::Search, 2);
        assert_eq!(parts.sum_of(Component::Prompt), Some(15));
        assert_eq!(parts.sum_of(Component::Completion), Some(7));
        assert_eq!(parts.with(Component::ImagePrompt, i64::MAX).sum_of(Component::Prompt), None);
    }
}
