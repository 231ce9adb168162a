//! JSON deserializers that estimate the tokens of the values that they read.

use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::{MediaKind, TextTokens};
use crate::lenient::{Gather, Lenient, Name};

/// Members whose values a model neither reads nor writes.
const BESIDE_TEXT: &[&str] = &[
    "role",
    "id",
    "call_id",
    "tool_call_id",
    "type",
    "status",
    "signature",
    "thought_signature",
    "encrypted_content",
    "annotations",
    "logprobs",
    "token_ids",
    "cache_control",
];

/// A string, or a value that contains strings: the content, the reasoning, the refusal, or the names and
/// arguments of tool calls. Images and audio in the value are counted as media.
#[derive(Default)]
pub(crate) struct Text(pub(crate) TextTokens);

impl<'de> Gather<'de> for Text {
    fn text(&mut self, text: &str) {
        self.0 = match MediaKind::of_data_url(text) {
            Some(kind) => kind.tokens(text),
            None => TextTokens::of(text),
        };
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(Self(text))) = items.next_element()? {
            self.0 += text;
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            self.0 += member_tokens(&name, &mut members)?;
        }
        Ok(())
    }
}

/// Reads the value of a member, and returns the tokens of its content.
pub(crate) fn member_tokens<'de, A: MapAccess<'de>>(
    name: &str,
    members: &mut A,
) -> Result<TextTokens, A::Error> {
    Ok(match name {
        "b64_json" | "partial_image_b64" | "result" | "image_url" => inline::<Image, _>(members)?.tokens,
        "data" => inline::<Audio, _>(members)?.tokens,
        "file_data" => inline::<File, _>(members)?.tokens,
        _ if BESIDE_TEXT.contains(&name) => {
            members.next_value::<IgnoredAny>()?;
            TextTokens::default()
        }
        _ => members.next_value::<Lenient<Text>>()?.0.0,
    })
}

/// Reads the value of a member that contains media of this kind.
pub(crate) fn inline<'de, K: Kind, A: MapAccess<'de>>(members: &mut A) -> Result<Inline<K>, A::Error> {
    Ok(members.next_value::<Lenient<Inline<K>>>()?.0)
}

/// The kind of a piece of media, unless its content indicates another kind.
pub(crate) trait Kind: Default {
    const KIND: MediaKind;
}

macro_rules! kinds {
    ($($name:ident)+) => {$(
        #[derive(Default)]
        pub(crate) struct $name;

        impl Kind for $name {
            const KIND: MediaKind = MediaKind::$name;
        }
    )+};
}

kinds!(Image Audio Video File);

/// A piece of media: a data URL, base64, a URL, or an object with one of them.
#[derive(Default)]
pub(crate) struct Inline<K> {
    pub(crate) tokens: TextTokens,
    /// `true` if the content is at a remote address.
    pub(crate) is_remote: bool,
    kind: PhantomData<K>,
}

impl<'de, K: Kind> Gather<'de> for Inline<K> {
    fn text(&mut self, text: &str) {
        /// The longest scheme that is recognized, with `://`.
        const MAX_BYTES: usize = 16;
        let start = text.as_bytes().get(..text.len().min(MAX_BYTES)).unwrap_or_default();
        self.is_remote = memchr::memmem::find(start, b"://").is_some();
        let is_media = self.is_remote || text.starts_with("data:") || MediaKind::is_base64(text);
        let kind = MediaKind::of_data_url(text).or_else(|| MediaKind::of_base64(text)).unwrap_or(K::KIND);
        self.tokens = if is_media { kind.tokens(text) } else { TextTokens::of(text) };
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(item)) = items.next_element::<Lenient<Self>>()? {
            self.tokens += item.tokens;
            self.is_remote |= item.is_remote;
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "file_id" => {
                    members.next_value::<IgnoredAny>()?;
                    self.is_remote = true;
                    self.tokens += K::KIND.tokens("");
                }
                "type" | "media_type" | "mime_type" | "format" | "detail" | "filename" | "name" | "id" => {
                    members.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let Lenient(inner) = members.next_value::<Lenient<Self>>()?;
                    self.tokens += inner.tokens;
                    self.is_remote |= inner.is_remote;
                }
            }
        }
        Ok(())
    }
}

/// JSON that a model reads completely, such as the description of a tool. A server inserts it into the prompt
/// with few characters around each name and value.
#[derive(Default)]
pub(crate) struct Description(pub(crate) TextTokens);

impl<'de> Gather<'de> for Description {
    fn some(&mut self) {
        self.0 = TextTokens::new(1);
    }
    fn text(&mut self, text: &str) {
        self.0 += TextTokens::of(text);
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(Self(item))) = items.next_element()? {
            self.0 += item;
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let Lenient(Self(value)) = members.next_value()?;
            self.0 += TextTokens::of(&name) + value;
        }
        Ok(())
    }
}
