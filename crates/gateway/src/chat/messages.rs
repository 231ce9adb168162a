//! The messages of a chat, counted in passing.

use input::fields::{Field, Location, Problems};
use input::json::Json;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::{Value, json};

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
    /// `file`.
    pub files: i64,
}

/// The messages of a chat.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Messages {
    /// The number of messages.
    pub count: i64,
    /// The parts that aren't text, of all messages.
    pub parts: Parts,
}

/// The value of `messages`: a value of another type is kept as that type.
#[derive(Debug)]
pub(super) struct MessagesValue {
    pub(super) messages: Messages,
    /// Stands for the value where its type and its first item are checked.
    pub(super) stand_in: Json<'static>,
}

/// The `messages` of a request as a field that must be an array with an item.
pub(super) struct MessageList;

impl Field for MessageList {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(items) if items.is_empty() => {
                problems.add(at, "empty", format!("`{}` must have at least one message.", at.path))
            }
            Json::Array(_) => Some(Self),
            other => problems.wrong_type(at, "an array", &other),
        }
    }
    fn schema() -> Value {
        json!({
            "type": "array",
            "minItems": 1,
            "items": {"type": "object"},
            "examples": [[{"role": "user", "content": "Hello"}]],
        })
    }
}

impl<'de> Deserialize<'de> for MessagesValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Lenient(Counted { messages, kind }) = Lenient::deserialize(deserializer)?;
        let stand_in = match kind {
            ValueKind::Null => Json::Null,
            ValueKind::Text => Json::Text("".into()),
            ValueKind::Object => Json::Object(Vec::new()),
            ValueKind::Array if messages.count == 0 => Json::Array(Vec::new()),
            ValueKind::Array => Json::Array(vec![Json::Null]),
            ValueKind::Integer => Json::Integer(0),
            ValueKind::Other => Json::Bool(false),
        };
        Ok(Self { messages, stand_in })
    }
}

#[derive(Default)]
struct Counted {
    messages: Messages,
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
    fn text(&mut self, _: &str) {
        self.kind = ValueKind::Text;
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
        while let Some(Lenient(Message(parts))) = items.next_element()? {
            self.messages.count += 1;
            self.messages.parts.add(parts);
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
    }

    /// Returns a part of the kind that a name stands for: the type of a part, and also the name of the member
    /// with its content, because some upstreams read a part without its type.
    fn of(name: &str) -> Self {
        let none = Self::default();
        match name {
            "image_url" | "input_image" | "image_embeds" | "image_pil" | "image" => {
                Self { images: 1, ..none }
            }
            "input_audio" | "audio_url" | "audio_embeds" | "audio" => Self { audios: 1, ..none },
            "video_url" | "input_video" | "video" => Self { videos: 1, ..none },
            "file" | "input_file" | "file_url" => Self { files: 1, ..none },
            _ => none,
        }
    }

    /// Adds what type and name of one part say, each kind once.
    fn combine(&mut self, other: Self) {
        self.images = self.images.max(other.images);
        self.audios = self.audios.max(other.audios);
        self.videos = self.videos.max(other.videos);
        self.files = self.files.max(other.files);
    }
}

/// The parts of one message.
#[derive(Default)]
struct Message(Parts);

impl<'de> Gather<'de> for Message {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            if name == "content" {
                // Another `content` would count too: upstreams differ in which one they read.
                self.0.add(members.next_value::<Lenient<Content>>()?.0.0);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The parts of one content: an array, or one part alone.
#[derive(Default)]
struct Content(Parts);

impl<'de> Gather<'de> for Content {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(Part(parts))) = items.next_element()? {
            self.0.add(parts);
        }
        Ok(())
    }
    fn object<A: MapAccess<'de>>(&mut self, members: A) -> Result<(), A::Error> {
        let mut part = Part::default();
        part.object(members)?;
        self.0.add(part.0);
        Ok(())
    }
}

/// One part.
#[derive(Default)]
struct Part(Parts);

impl<'de> Gather<'de> for Part {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            if name == "type" {
                self.0.combine(members.next_value::<Lenient<PartType>>()?.0.0);
            } else {
                self.0.combine(Parts::of(&name));
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The value of `type`.
#[derive(Default)]
struct PartType(Parts);

impl Gather<'_> for PartType {
    fn text(&mut self, text: &str) {
        self.0 = Parts::of(text);
    }
}
