//! Readers of JSON that accept any value. A value of an unexpected type counts as absent.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that is gathered from JSON of any type. By default, JSON of each type is ignored.
pub(crate) trait Gather<'de>: Default {
    fn text(&mut self, _text: &str) {}

    fn integer(&mut self, _number: i64) {}

    /// Handles a number with a fraction or an exponent, or an integer that is out of range.
    fn float(&mut self, _number: f64) {}

    /// Handles any value except null.
    fn some(&mut self) {}

    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// A gathered value.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lenient<T>(pub(crate) T);

/// The name of a member.
#[derive(serde::Deserialize)]
pub(crate) struct Name<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

struct AnyVisitor<T>(PhantomData<T>);

impl<'de, T: Gather<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor(PhantomData)).map(Self)
    }
}

impl<'de, T: Gather<'de>> Visitor<'de> for AnyVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(gathered(T::some))
    }
    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(gathered(|value: &mut T| {
            value.some();
            value.float(number);
        }))
    }
    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(gathered(|value: &mut T| {
            value.some();
            value.integer(number);
        }))
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        i64::try_from(number).map_or_else(|_| Ok(gathered(T::some)), |number| self.visit_i64(number))
    }
    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(gathered(|value: &mut T| {
            value.some();
            value.text(text);
        }))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        let mut value = gathered(T::some);
        value.array(items)?;
        Ok(value)
    }
    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        let mut value = gathered(T::some);
        value.object(members)?;
        Ok(value)
    }
}

fn gathered<T: Default>(fill: impl FnOnce(&mut T)) -> T {
    let mut value = T::default();
    fill(&mut value);
    value
}
