//! The strings, messages or items that a model reads, counted while they are parsed.

use std::mem;

use input::json::Json;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess};

use crate::count::TextTokens;
use crate::count::reading::{self, Inline, inline, member_tokens};
use crate::lenient::{Gather, Lenient, Name};

/// The parts of contents that aren't text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parts {
    /// `image_url`, inline or remote, and embeddings of images.
    pub images: i64,
    /// `input_audio`, `audio_url` and embeddings of audio.
    pub audios: i64,
    /// `video_url`.
    pub videos: i64,
    /// `file` and `document`.
    pub files: i64,
    /// Remote parts, by URL or id, whose size isn't known. They are also included in the counts above.
    pub remote: i64,
}

/// The contents of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Contents {
    /// The number of messages or items.
    pub items: i64,
    /// The number of inputs, each of which is a string or an array of tokens.
    pub texts: i64,
    /// The parts that aren't text, of all items.
    pub parts: Parts,
    /// The estimated tokens of all items, including their media.
    pub text: TextTokens,
    /// The number of tokens in inputs that were sent as tokens.
    pub tokens: i64,
    /// `true` if an item refers to an item that is stored at an upstream.
    pub has_references: bool,
}

/// The value of the contents. A value of the wrong type keeps that type.
#[derive(Debug)]
pub(super) struct ContentsValue {
    pub(super) contents: Contents,
    /// The value that stands in for the contents when their type and length are checked. An array is
    /// represented by an array whose only item is the number of inputs.
    pub(super) stand_in: Json<'static>,
}

impl<'de> Deserialize<'de> for ContentsValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Lenient(Counted { mut contents, has_tokens, kind }) = Lenient::deserialize(deserializer)?;
        contents.texts += i64::from(has_tokens || matches!(kind, ValueKind::Text));
        let stand_in = match kind {
            ValueKind::Null => Json::Null,
            ValueKind::Text => Json::Text("".into()),
            ValueKind::Object => Json::Object(Vec::new()),
            ValueKind::Array if contents.items == 0 => Json::Array(Vec::new()),
            ValueKind::Array => Json::Array(vec![Json::Integer(contents.texts)]),
            ValueKind::Integer => Json::Integer(0),
            ValueKind::Other => Json::Bool(false),
        };
        Ok(Self { contents, stand_in })
    }
}

#[derive(Default)]
struct Counted {
    contents: Contents,
    /// `true` if some items are tokens, which together form one input.
    has_tokens: bool,
    kind: ValueKind,
}

#[derive(Default)]
enum ValueKind {
    #[default]
    Null,
    Text,
    Integer,
    Object,
    Array,
    Other,
}

impl<'de> Gather<'de> for Counted {
    fn some(&mut self) {
        self.kind = ValueKind::Other;
    }
    fn text(&mut self, text: &str) {
        self.kind = ValueKind::Text;
        self.contents.text = TextTokens::of(text);
    }
    fn integer(&mut self, _: i64) {
        self.kind = ValueKind::Integer;
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        self.kind = ValueKind::Object;
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        self.kind = ValueKind::Array;
        while let Some(Lenient(item)) = items.next_element::<Lenient<Item>>()? {
            self.contents.items += 1;
            self.contents.texts += i64::from(!item.is_token);
            self.contents.parts.add(item.parts);
            self.contents.text += item.text;
            self.contents.tokens = self.contents.tokens.saturating_add(item.tokens);
            self.contents.has_references |= item.is_reference();
            self.has_tokens |= item.is_token;
        }
        Ok(())
    }
}

impl Parts {
    fn add(&mut self, more: Self) {
        self.images += more.images;
        self.audios += more.audios;
        self.videos += more.videos;
        self.files += more.files;
        self.remote += more.remote;
    }

    /// Returns the kind of part for a name, which is the type of a part or the name of the member with its
    /// content. Both are accepted, because some upstreams read a part without its type.
    fn of(name: &str) -> Self {
        let none = Self::default();
        match name {
            "image_url" | "input_image" | "image_embeds" | "image_pil" | "image" => {
                Self { images: 1, ..none }
            }
            "input_audio" | "audio_url" | "audio_embeds" | "audio" => Self { audios: 1, ..none },
            "video_url" | "input_video" | "video" => Self { videos: 1, ..none },
            "file" | "input_file" | "file_url" | "document" => Self { files: 1, ..none },
            _ => none,
        }
    }

    /// Combines the kinds derived from the type and the member names of one part, counting each kind once.
    fn combine(&mut self, other: Self) {
        self.images = self.images.max(other.images);
        self.audios = self.audios.max(other.audios);
        self.videos = self.videos.max(other.videos);
        self.files = self.files.max(other.files);
        self.remote = self.remote.max(other.remote);
    }
}

/// An item: a string, a token, an array of tokens, a message, or another item of a conversation.
#[derive(Default)]
struct Item {
    parts: Parts,
    text: TextTokens,
    tokens: i64,
    is_token: bool,
    has_reference_type: bool,
    has_id: bool,
    has_more: bool,
}

impl Item {
    /// Returns `true` for `{"type": "item_reference", "id": "…"}`, whose type may be absent.
    fn is_reference(&self) -> bool {
        self.has_reference_type || (self.has_id && !self.has_more)
    }
}

impl<'de> Gather<'de> for Item {
    fn integer(&mut self, _: i64) {
        self.is_token = true;
        self.tokens = 1;
    }
    fn text(&mut self, text: &str) {
        self.text = TextTokens::of(text);
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(IsToken(is_token))) = items.next_element()? {
            self.tokens += i64::from(is_token);
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                // A repeated `content` counts, too, because upstreams differ in which one they read.
                "content" | "output" => {
                    let Lenient(Content(part)) = members.next_value()?;
                    self.parts.add(part.parts);
                    self.text += part.text;
                    self.has_more = true;
                }
                "id" => {
                    members.next_value::<IgnoredAny>()?;
                    self.has_id = true;
                }
                "type" => match members.next_value::<Lenient<ItemType>>()?.0 {
                    ItemType::Absent => {}
                    ItemType::Reference => self.has_reference_type = true,
                    ItemType::Other => self.has_more = true,
                },
                name => {
                    self.text += text_of(name, &mut members)?;
                    self.has_more = true;
                }
            }
        }
        Ok(())
    }
}

/// `true` if the value is a token.
#[derive(Default)]
struct IsToken(bool);

impl Gather<'_> for IsToken {
    fn integer(&mut self, _: i64) {
        self.0 = true;
    }
}

/// The value of an item's `type`.
#[derive(Default)]
enum ItemType {
    #[default]
    Absent,
    Reference,
    Other,
}

impl Gather<'_> for ItemType {
    fn some(&mut self) {
        *self = Self::Other;
    }
    fn text(&mut self, text: &str) {
        if text == "item_reference" {
            *self = Self::Reference;
        }
    }
}

/// The parts of a message's content, which is a string, an array, or a single part.
#[derive(Default)]
struct Content(Part);

impl<'de> Gather<'de> for Content {
    fn text(&mut self, text: &str) {
        self.0.text = TextTokens::of(text);
    }
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(part)) = items.next_element::<Lenient<Part>>()? {
            self.0.add(part.all());
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, members: A) -> Result<(), A::Error> {
        let mut part = Part::default();
        part.object(members)?;
        self.0.add(part.all());
        Ok(())
    }
}

/// A part with its nested parts: the result of a tool has its own contents.
#[derive(Clone, Copy, Default)]
struct Part {
    parts: Parts,
    inner: Parts,
    text: TextTokens,
}

impl Part {
    fn all(mut self) -> Self {
        self.parts.add(mem::take(&mut self.inner));
        self
    }

    fn add(&mut self, more: Self) {
        self.parts.add(more.parts);
        self.text += more.text;
    }
}

impl<'de> Gather<'de> for Part {
    fn text(&mut self, text: &str) {
        self.text = TextTokens::of(text);
    }
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => self.parts.combine(members.next_value::<Lenient<PartType>>()?.0.0),
                "content" => {
                    let Lenient(Content(part)) = members.next_value()?;
                    self.inner.add(part.parts);
                    self.text += part.text;
                }
                name if Parts::of(name) != Parts::default()
                    || matches!(name, "url" | "source" | "file_id") =>
                {
                    let parts = Parts::of(name);
                    self.parts.combine(parts);
                    let (tokens, is_remote) = if parts.audios > 0 {
                        medium::<reading::Audio, _>(&mut members)?
                    } else if parts.videos > 0 {
                        medium::<reading::Video, _>(&mut members)?
                    } else if parts.files > 0 || name == "file_id" {
                        medium::<reading::File, _>(&mut members)?
                    } else {
                        medium::<reading::Image, _>(&mut members)?
                    };
                    self.text += tokens;
                    self.parts.remote |= i64::from(is_remote || name == "file_id");
                }
                name => self.text += text_of(name, &mut members)?,
            }
        }
        Ok(())
    }
}

/// Reads the value of a member with media. Returns the number of tokens, and whether the content is remote.
fn medium<'de, K: reading::Kind, A: MapAccess<'de>>(members: &mut A) -> Result<(TextTokens, bool), A::Error> {
    let Inline { tokens, is_remote, .. } = inline::<K, A>(members)?;
    Ok((tokens, is_remote))
}

/// Reads the value of a member, and returns the tokens of its text. Members that aren't part of the prompt
/// have no tokens.
fn text_of<'de, A: MapAccess<'de>>(name: &str, members: &mut A) -> Result<TextTokens, A::Error> {
    if matches!(name, "name" | "filename" | "detail" | "uuid") {
        members.next_value::<IgnoredAny>()?;
        return Ok(TextTokens::default());
    }
    member_tokens(name, members)
}

/// The value of `type`.
#[derive(Default)]
struct PartType(Parts);

impl Gather<'_> for PartType {
    fn text(&mut self, text: &str) {
        self.0 = Parts::of(text);
    }
}
