//! JSON objects that are edited in place: members are found, replaced, added and removed, and every other
//! byte stays unchanged.
//!
//! [`Object::read`] checks the whole text and notes the positions of the requested members. None of these
//! members may appear twice, because parsers differ in which one they use (RFC 8259, section 4). [`Edit`]
//! then replaces parts of the text.
//!
//! JSON that is only counted is read leniently: [`Object::read_lax`] accepts JSON that lenient parsers
//! accept, and all bytes outside the edits stay unchanged.

mod lax;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use hyper::body::Bytes;
use serde::de::{Deserialize, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::lenient::Name;
use lax::Laxity;

/// The maximum nesting of objects and arrays.
pub const MAX_DEPTH: usize = 128;

/// The reason why a string isn't an editable object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonError {
    /// The text isn't UTF-8.
    NotUtf8 {
        /// The position of the first invalid byte.
        at: usize,
    },
    /// The text isn't JSON, with the parser's message.
    Invalid(String),
    /// The text is JSON, but not an object.
    NotAnObject,
    /// Objects and arrays are nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A requested member appears twice.
    Duplicate(&'static str),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { at } => write!(f, "not valid UTF-8 at byte {at}"),
            Self::Invalid(message) => write!(f, "not valid JSON: {message}"),
            Self::NotAnObject => f.write_str("not a JSON object"),
            Self::TooDeep => write!(f, "nested deeper than {MAX_DEPTH}"),
            Self::Duplicate(name) => write!(f, "duplicate member {name:?}"),
        }
    }
}

impl std::error::Error for JsonError {}

/// An object, with the positions of the requested members.
#[derive(Clone, Debug)]
pub struct Object {
    text: Bytes,
    /// The same text repaired to valid JSON, if `text` isn't valid. Each member is at the same position.
    readable: Option<Bytes>,
    members: Vec<Member>,
    /// The position after `{`.
    inside: usize,
    /// The position of `}`.
    end: usize,
}

#[derive(Clone, Debug)]
struct Member {
    name: &'static str,
    /// The position of the name's opening quote.
    name_at: usize,
    value: Range<usize>,
}

impl Object {
    /// Reads a whole text, and notes the positions of the members with these names.
    pub fn read(text: Bytes, names: &'static [&'static str]) -> Result<Self, JsonError> {
        Ok(Self::read_with::<IgnoredAny>(text, names, "")?.0)
    }

    /// Reads the text like [`read`](Self::read), and also parses the member `part`, which needn't be among
    /// `names`. `T` must accept all JSON that the caller wants to accept.
    pub fn read_with<T: for<'a> Deserialize<'a>>(
        text: Bytes,
        names: &'static [&'static str],
        part: &'static str,
    ) -> Result<(Self, Option<T>), JsonError> {
        let string = std::str::from_utf8(&text).map_err(|e| JsonError::NotUtf8 { at: e.valid_up_to() })?;
        let invalid = |error: serde_json::Error| match error.to_string() {
            // The parser has no error kind for this.
            message if message.starts_with("recursion limit exceeded") => JsonError::TooDeep,
            message => JsonError::Invalid(message),
        };
        if !string.trim_ascii_start().starts_with('{') {
            serde_json::from_str::<IgnoredAny>(string).map_err(invalid)?;
            return Err(JsonError::NotAnObject);
        }
        let mut reader =
            Reader { text: string, names, part, members: Vec::new(), found: None, duplicate: None };
        let mut deserializer = serde_json::Deserializer::from_str(string);
        let outcome = deserializer.deserialize_map(&mut reader).and_then(|()| deserializer.end());
        let Reader { members, found, duplicate, .. } = reader;
        if let Err(error) = outcome {
            return Err(duplicate.map_or_else(|| invalid(error), JsonError::Duplicate));
        }
        let inside = string.find('{').map_or(0, |at| at + 1);
        let end = string.rfind('}').unwrap_or(string.len());
        Ok((Self { inside, end, members, text, readable: None }, found))
    }

    /// Reads the text like [`read_with`](Self::read_with), but also accepts strings with unpaired surrogates
    /// as escapes (`"\ud83d"`). In names, they are refused.
    pub fn read_with_surrogates<T: for<'a> Deserialize<'a>>(
        text: Bytes,
        names: &'static [&'static str],
        part: &'static str,
    ) -> Result<(Self, Option<T>), JsonError> {
        Self::read_repaired(text, names, part, Laxity::Escapes)
    }

    /// Reads the text like [`read_with`](Self::read_with), but also accepts text that lenient clients can
    /// read: bytes that aren't UTF-8, control characters in strings, `NaN`, a byte order mark.
    pub fn read_lax_with<T: for<'a> Deserialize<'a>>(
        text: Bytes,
        names: &'static [&'static str],
        part: &'static str,
    ) -> Result<(Self, Option<T>), JsonError> {
        Self::read_repaired(text, names, part, Laxity::Everything)
    }

    /// Reads the text like [`read_lax_with`](Self::read_lax_with), without parsing a member.
    pub fn read_lax(text: Bytes, names: &'static [&'static str]) -> Result<Self, JsonError> {
        Ok(Self::read_lax_with::<IgnoredAny>(text, names, "")?.0)
    }

    fn read_repaired<T: for<'a> Deserialize<'a>>(
        text: Bytes,
        names: &'static [&'static str],
        part: &'static str,
        laxity: Laxity,
    ) -> Result<(Self, Option<T>), JsonError> {
        let outcome = Self::read_with(text.clone(), names, part);
        let is_readable = match &outcome {
            Err(JsonError::NotUtf8 { .. } | JsonError::Invalid(_)) => false,
            // The parser doesn't check escapes in skipped values, and would fail on them later.
            Ok(_) => !lax::has_unpaired_surrogate(&text),
            Err(_) => true,
        };
        if is_readable {
            return outcome;
        }
        let Some(readable) = lax::readable(&text, laxity).map(Bytes::from) else { return outcome };
        let (object, found) = Self::read_with(readable.clone(), names, part)?;
        Ok((Self { text, readable: Some(readable), ..object }, found))
    }

    /// Returns the text of a member's value, as JSON.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.readable().get(self.place(name)?)
    }

    /// Returns the whole text, as JSON.
    pub fn readable(&self) -> &Bytes {
        self.readable.as_ref().unwrap_or(&self.text)
    }

    /// Returns the unchanged text of a member's value, which shares the memory of the whole text.
    pub fn slice(&self, name: &str) -> Option<Bytes> {
        Some(self.text.slice(self.place(name)?))
    }

    fn place(&self, name: &str) -> Option<Range<usize>> {
        Some(self.members.iter().find(|member| member.name == name)?.value.clone())
    }

    /// Returns the whole text.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Starts an edit of this object.
    pub fn edit(&self) -> Edit<'_> {
        Edit { object: self, changes: Vec::new() }
    }
}

/// Parses a value with the laxity of [`Object::read_lax`]; returns `None` if it can't be parsed.
pub(crate) fn read_lax_value<T: for<'a> Deserialize<'a>>(value: &[u8]) -> Option<T> {
    let strict = serde_json::from_slice(value);
    strict.ok().or_else(|| serde_json::from_slice(&lax::readable(value, Laxity::Everything)?).ok())
}

/// Returns the text without duplicate members. The last of several members with the same name is kept,
/// because most clients use that one.
pub(crate) fn last_of_each_member(text: &[u8]) -> Option<Bytes> {
    let value: serde_json::Value = read_lax_value(text)?;
    Some(value.to_string().into())
}

/// Fails if objects and arrays are nested deeper than [`MAX_DEPTH`]. The text must be valid JSON.
pub fn check_depth(text: &[u8]) -> Result<(), JsonError> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(JsonError::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_string(text, at + 1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Returns the position of the quote that ends a string.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(rest) = text.get(at..) {
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(found) if rest.get(found) == Some(&b'\\') => at += found + 2,
            Some(found) => return at + found,
            None => break,
        }
    }
    text.len()
}

/// A visitor that notes the members of an object.
struct Reader<'a, T> {
    text: &'a str,
    names: &'static [&'static str],
    part: &'static str,
    members: Vec<Member>,
    found: Option<T>,
    duplicate: Option<&'static str>,
}

impl<'a, T: for<'b> Deserialize<'b>> Visitor<'a> for &mut Reader<'a, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            if name == self.part {
                if self.found.replace(members.next_value()?).is_some() {
                    return Err(self.refuse(self.part));
                }
            } else if let Some(&name) = self.names.iter().find(|watched| **watched == name) {
                let value: &'a RawValue = members.next_value()?;
                if self.members.iter().any(|member| member.name == name) {
                    return Err(self.refuse(name));
                }
                self.note(name, value.get());
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<T> Reader<'_, T> {
    fn refuse<E: serde::de::Error>(&mut self, name: &'static str) -> E {
        self.duplicate = Some(name);
        E::custom("duplicate member")
    }

    /// Notes a member. `value` is a part of the text.
    fn note(&mut self, name: &'static str, value: &str) {
        let start = value.as_ptr() as usize - self.text.as_ptr() as usize;
        // A colon and white space separate the name from its value. The requested names contain no quotes.
        let before = self.text.as_bytes().get(..start).unwrap_or_default();
        let quote = memchr::memrchr(b'"', before).unwrap_or_default();
        let name_at = memchr::memrchr(b'"', before.get(..quote).unwrap_or_default()).unwrap_or_default();
        self.members.push(Member { name, name_at, value: start..start + value.len() });
    }
}

enum Change<'a> {
    Set(Cow<'a, [u8]>),
    Remove,
}

/// Changes to an object. The last change to a member wins.
pub struct Edit<'a> {
    object: &'a Object,
    changes: Vec<(&'static str, Change<'a>)>,
}

impl<'a> Edit<'a> {
    /// Sets a member to this value, which must be JSON. An absent member is added at the end. The name must
    /// have been requested when the object was read. Otherwise the member could appear twice.
    pub fn set(&mut self, name: &'static str, value: impl Into<Cow<'a, [u8]>>) -> &mut Self {
        self.change(name, Change::Set(value.into()))
    }

    /// Removes a member with one of its commas.
    pub fn remove(&mut self, name: &'static str) -> &mut Self {
        self.change(name, Change::Remove)
    }

    fn change(&mut self, name: &'static str, change: Change<'a>) -> &mut Self {
        self.changes.retain(|(other, _)| *other != name);
        self.changes.push((name, change));
        self
    }

    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the text with all changes, without a copy if nothing changes.
    pub fn to_bytes(&self) -> Bytes {
        let Object { text, members, inside, end, .. } = self.object;
        let (present, absent): (Vec<_>, Vec<_>) =
            self.changes.iter().partition(|(name, _)| members.iter().any(|member| member.name == *name));
        let added: Vec<_> =
            absent.into_iter().filter_map(|(name, change)| Some((name, change.value()?))).collect();
        if present.is_empty() && added.is_empty() {
            return text.clone();
        }
        let room: usize = self.changes.iter().map(|(name, change)| name.len() + change.length() + 4).sum();
        let mut out =
            Output { text, bytes: Vec::with_capacity(text.len() + room), copied: 0, start: *inside };
        for member in members {
            match present.iter().find(|(name, _)| *name == member.name) {
                Some((_, Change::Set(value))) => out.replace(&member.value, value),
                Some((_, Change::Remove)) => out.remove(member),
                None => {}
            }
        }
        // Members are added directly after the last member, so that white space before the brace stays there.
        let tail = end - trailing_space(text.get(..*end).unwrap_or_default());
        out.copy_to(tail);
        for (name, value) in added {
            out.add(name, value);
        }
        out.copy_to(text.len());
        Bytes::from(out.bytes)
    }
}

impl Change<'_> {
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Set(value) => Some(value),
            Self::Remove => None,
        }
    }

    fn length(&self) -> usize {
        self.value().map_or(0, <[u8]>::len)
    }
}

/// The edited text written so far.
struct Output<'a> {
    text: &'a [u8],
    bytes: Vec<u8>,
    /// The number of bytes of the text that were copied or skipped.
    copied: usize,
    /// The position after the opening brace, or after members removed directly behind the brace.
    start: usize,
}

impl<'a> Output<'a> {
    fn copy_to(&mut self, place: usize) {
        self.bytes.extend_from_slice(self.text.get(self.copied..place).unwrap_or_default());
        self.copied = self.copied.max(place);
    }

    fn replace(&mut self, place: &Range<usize>, value: &[u8]) {
        self.copy_to(place.start);
        self.bytes.extend_from_slice(value);
        self.copied = place.end;
    }

    /// Skips a member. At the start of the object, the comma after the member is removed with it; elsewhere,
    /// the comma before the member.
    fn remove(&mut self, member: &Member) {
        let end = member.value.end;
        let (before, after) = (self.text.get(..member.name_at), self.text.get(end..));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let gap = trailing_space(before);
        if member.name_at - gap > self.start {
            self.copy_to(member.name_at - gap - 1);
            self.copied = end;
            return;
        }
        self.copy_to(member.name_at);
        let space = leading_space(after);
        self.copied = match after.get(space..) {
            Some([b',', next @ ..]) => end + space + 1 + leading_space(next),
            _ => end,
        };
        self.start = self.copied;
    }

    fn add(&mut self, name: &str, value: &[u8]) {
        let is_first = self.bytes.trim_ascii_end().ends_with(b"{");
        self.bytes.extend_from_slice(if is_first { b"\"" } else { b",\"" });
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
        self.bytes.extend_from_slice(value);
    }
}

fn leading_space(text: &[u8]) -> usize {
    text.len() - text.trim_ascii_start().len()
}

fn trailing_space(text: &[u8]) -> usize {
    text.len() - text.trim_ascii_end().len()
}

#[cfg(test)]
mod tests;
