//! Values shared by several objects.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Keys and values that a caller attaches to an object. Stripe keeps at most 50, with keys of up to 40 and
/// values of up to 500 characters.
pub type Metadata = BTreeMap<String, String>;

/// The key by which Stripe recognizes a repeated POST: 1 to 255 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Maximum length of a key, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Parses a key; `None` if it's empty, too long, or contains other characters.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let is_good =
            (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        is_good.then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A reference to another object: its id, or the object itself if expanded.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Expandable<T> {
    Id(String),
    Object(Box<T>),
}

impl<T> Expandable<T> {
    /// Returns the object, if the response contains it.
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Id(_) => None,
            Self::Object(object) => Some(object),
        }
    }
}

/// An object with an id.
pub trait Identified {
    fn id(&self) -> &str;
}

/// An object of which only the id is used.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Reference {
    pub id: String,
}

impl Identified for Reference {
    fn id(&self) -> &str {
        &self.id
    }
}

impl<T: Identified> Expandable<T> {
    /// Returns the id of the object.
    pub fn id(&self) -> &str {
        match self {
            Self::Id(id) => id,
            Self::Object(object) => object.id(),
        }
    }
}

/// A page of a list, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Page<T> {
    pub data: Vec<T>,
    /// Whether more, older objects exist: request those after the last object's id.
    pub has_more: bool,
}

/// A selection of objects by creation time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Created<'a> {
    /// The earliest creation time, in Unix seconds.
    pub from: Option<i64>,
    /// The end of the interval (exclusive), in Unix seconds.
    pub until: Option<i64>,
    /// The last id of the previous page.
    pub after: Option<&'a str>,
}

/// Maximum number of objects per page.
pub(crate) const PAGE: i64 = 100;

/// Deserializes a missing or null value as an empty map.
pub(crate) fn metadata<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    Ok(Option::<Metadata>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_visible_ascii() {
        for good in ["a", "payment:0190-1", &"k".repeat(255)] {
            assert_eq!(IdempotencyKey::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\n", "é", &"k".repeat(256)] {
            assert_eq!(IdempotencyKey::new(bad), None, "{bad:.20}");
        }
    }
}
