//! What a request asks for beside its text: the fields that it has, the tools that it brings, and what it refers to or has
//! others load. One pass over the body notes it; [`policy`] decides what of it an upstream gets.
//!
//! Names are compared as the laxest reader would ([`names`](crate::names)), in the objects whose members are known: the
//! request itself, the items of a conversation, the parts of their contents, tools. What people put into a call of a function, a
//! schema or the like is theirs.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use kernel::error::{Detail, Error};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::policy;
use crate::lenient::Name;
use crate::names::{lookalike, misspelled, shown, unsupported};
use crate::operation::Operation;

/// The most members of a request. Real ones have twenty.
const MAX_FIELDS: usize = 256;
/// The most kinds of tools and references of one request that are told apart.
const MAX_USES: usize = 64;
/// The most addresses of media in one request.
pub(crate) const MAX_MEDIA: usize = 64;

/// The members that hold what a model reads. Some upstreams read one that an operation hasn't.
const CONTENTS: [&str; 4] = ["messages", "input", "prompt", "system"];

/// The members of items and parts that are looked at.
const PART_NAMES: &[&str] = &[
    "role",
    "type",
    "id",
    "text",
    "content",
    "output",
    "encrypted_content",
    "result",
    "tools",
    "tool_calls",
    "call_id",
    "name",
    "arguments",
    "image_url",
    "video_url",
    "audio_url",
    "file_url",
    "image",
    "video",
    "audio",
    "input_image",
    "input_video",
    "input_audio",
    "source",
    "file",
    "input_file",
    "file_data",
    "filename",
    "file_id",
    "file_ids",
    "container",
    "container_id",
    "vector_store_ids",
    "connector_id",
    "uuid",
    "content_hash",
];
/// Those of an object with the address of something.
const ADDRESS_NAMES: &[&str] = &[
    "url",
    "type",
    "data",
    "media_type",
    "format",
    "content",
    "id",
    "file_id",
    "file_data",
    "file_url",
    "filename",
    "content_hash",
];
/// Those of tools.
const TOOL_NAMES: &[&str] = &[
    "type",
    "function",
    "name",
    "tools",
    "container",
    "environment",
    "file_ids",
    "vector_store_ids",
    "server_url",
];

/// The names of all members of requests that are known here.
static KNOWN: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    super::NAMES.iter().chain(&CONTENTS).chain(&["tools"]).copied().chain(policy::listed()).collect()
});

/// What a request has.
#[derive(Clone, Default, Debug)]
pub(super) struct Survey {
    /// The names of its members that aren't null, as they were sent.
    pub(super) fields: Vec<Cow<'static, str>>,
    /// What it uses in addition, each once.
    pub(super) uses: Vec<Use>,
    /// What it has loaded.
    pub(super) media: Vec<Media>,
}

/// A use of something that may cost or reach more than the text says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Use {
    /// Its name in errors and lists: `tools.web_search`.
    pub(super) name: Cow<'static, str>,
    pub(super) class: Class,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// A tool that the client runs.
    ClientTool,
    /// A tool that a server runs.
    HostedTool,
    /// A search on the web that is offered among other tools, and that nothing asks for.
    OfferedSearch,
    /// A tool of another type.
    UnknownTool,
    /// Something that a server keeps, by its id.
    Reference,
    /// A value of a field that may cost more.
    Costly,
}

/// The address of something to load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Media {
    pub(crate) scheme: Scheme,
    pub(crate) form: Form,
    /// The place of what takes its content instead, in the body.
    pub(crate) place: Range<usize>,
    /// The address.
    pub(crate) url: String,
    /// The member with the contents that it is in.
    pub(crate) within: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// `http` or `https`
    Web,
    /// Another one.
    Other,
    /// `file`, or none: a path.
    Local,
}

/// How a content is put in the place of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The place is a string, which becomes a data URL.
    Url,
    /// The place is `"file_url": "…"`, which becomes `file_data`.
    FileUrl { has_name: bool },
    /// The place is a `source` of Anthropic's form.
    Source,
}

impl Survey {
    /// Reads a body, which is an object of JSON, and not nested too deeply.
    ///
    /// # Errors
    /// 400 `unsupported_parameter` for a name that another reader would take for one that is known here, and 400 for far too
    /// many members or tools.
    pub(super) fn read(operation: Operation, body: &str) -> Result<Self, Error> {
        let mut walker =
            Walker { operation, text: body, survey: Self::default(), refusal: None, forces_tool: false };
        let mut deserializer = serde_json::Deserializer::from_str(body);
        let outcome = deserializer.deserialize_map(Request(&mut walker));
        let Walker { mut survey, refusal, forces_tool, .. } = walker;
        match (outcome, refusal) {
            (_, Some(refusal)) => return Err(refusal),
            // The text was read before.
            (Err(error), None) => return Err(Error::internal(format_args!("a body that was read: {error}"))),
            (Ok(()), None) => {}
        }
        if forces_tool || operation != Operation::Responses {
            for found in survey.uses.iter_mut().filter(|found| found.class == Class::OfferedSearch) {
                found.class = Class::HostedTool;
            }
        }
        Ok(survey)
    }
}

/// What was found in an item or a part.
#[derive(Default)]
struct Item<'a> {
    kind: Option<Cow<'a, str>>,
    has_id: bool,
    /// It has content of its own.
    has_content: bool,
    has_name: bool,
    file_urls: usize,
}

/// Reads one request.
struct Walker<'a> {
    operation: Operation,
    text: &'a str,
    survey: Survey,
    refusal: Option<Error>,
    /// `tool_choice` leaves the model no choice.
    forces_tool: bool,
}

impl<'a> Walker<'a> {
    /// Ends the reading with this refusal.
    fn refuse<T, E: serde::de::Error>(&mut self, error: Error) -> Result<T, E> {
        self.refusal.get_or_insert(error);
        Err(E::custom("refused"))
    }

    /// Refuses a name that another reader would take for one of these. The place of its object is only written if it is.
    fn check_name<E: serde::de::Error>(
        &mut self,
        (within, member): (&str, Option<&str>),
        name: &str,
        names: &[&'static str],
    ) -> Result<(), E> {
        let Some(meant) = lookalike(name, names.iter().copied()) else { return Ok(()) };
        let place = match member {
            Some(member) => format!("{within}.{member}."),
            None => format!("{within}."),
        };
        self.refuse(misspelled(&place, name, meant))
    }

    fn note<E: serde::de::Error>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        class: Class,
    ) -> Result<(), E> {
        let found = Use { name: name.into(), class };
        if self.survey.uses.contains(&found) {
            return Ok(());
        }
        if self.survey.uses.len() == MAX_USES {
            return self.refuse(too_many("The body has far too many kinds of tools and references."));
        }
        self.survey.uses.push(found);
        Ok(())
    }

    fn reference<E: serde::de::Error>(&mut self, within: &str, name: &str) -> Result<(), E> {
        self.note(format!("{within}.{name}"), Class::Reference)
    }

    /// Returns the place of a value in the body.
    fn place(&self, value: &str) -> Range<usize> {
        let start = value.as_ptr() as usize - self.text.as_ptr() as usize;
        start..start + value.len()
    }

    fn field<E: serde::de::Error>(&mut self, name: &str, value: &RawValue) -> Result<(), E> {
        let value = value.get();
        if value == "null" {
            return Ok(());
        }
        self.note_field(name)?;
        if name == "tool_choice" {
            self.forces_tool = !matches!(value, "\"auto\"" | "\"none\"");
        }
        match policy::is_harmless(name, value) {
            true => Ok(()),
            false => self.note(shown(name), Class::Costly),
        }
    }

    fn note_field<E: serde::de::Error>(&mut self, name: &str) -> Result<(), E> {
        if self.survey.fields.len() == MAX_FIELDS {
            return self.refuse(too_many("The body has more than 256 members."));
        }
        let known = KNOWN.get(name).map(|known| Cow::Borrowed(*known));
        self.survey.fields.push(known.unwrap_or_else(|| Cow::Owned(shown(name))));
        Ok(())
    }

    /// Takes a member of an item or a part.
    fn item_member<E: serde::de::Error>(
        &mut self,
        (within, depth): (&'static str, usize),
        name: &str,
        value: &'a RawValue,
        item: &mut Item<'a>,
    ) -> Result<(), E> {
        let text = value.get();
        let is_there = text != "null";
        match name {
            "type" => item.kind = serde_json::from_str::<Name<'_>>(text).ok().map(|Name(kind)| kind),
            "id" => item.has_id |= is_there,
            "encrypted_content" | "result" => item.has_content |= is_there && text != "\"\"",
            "filename" => item.has_name = true,
            "image_url" | "video_url" | "audio_url" | "image" | "video" | "audio" | "input_image"
            | "input_video" | "input_audio" | "file" | "input_file" => self.address(within, name, value)?,
            "file_url" => {
                item.file_urls += 1;
                self.url(within, value, Form::FileUrl { has_name: false })?;
            }
            "file_data" if has_scheme(text) => self.url(within, value, Form::Url)?,
            "source" => self.source(within, value)?,
            "file_id" | "file_ids" | "container" | "container_id" | "vector_store_ids" | "connector_id"
                if is_there =>
            {
                self.reference(within, name)?;
            }
            // vLLM and SGLang keep media by these, of all who use them.
            "uuid" | "content_hash" if is_there && depth > 0 => self.reference(within, name)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes an item whose members were all taken.
    fn end_item<E: serde::de::Error>(&mut self, within: &str, item: &Item<'_>) -> Result<(), E> {
        if item.has_name {
            let newest = self.survey.media.iter_mut().rev();
            for media in
                newest.filter(|media| matches!(media.form, Form::FileUrl { .. })).take(item.file_urls)
            {
                media.form = Form::FileUrl { has_name: true };
            }
        }
        match item.kind.as_deref() {
            Some(kind @ ("reasoning" | "image_generation_call" | "compaction"))
                if self.operation == Operation::Responses && item.has_id && !item.has_content =>
            {
                self.reference(within, kind)
            }
            _ => Ok(()),
        }
    }

    /// Takes the value of a member that says where something is: an address, or an object with one.
    fn address<E: serde::de::Error>(
        &mut self,
        within: &'static str,
        name: &str,
        value: &'a RawValue,
    ) -> Result<(), E> {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'"') => self.url(within, value, Form::Url),
            Some(b'[') => {
                let items: Vec<&'a RawValue> = serde_json::from_str(text).map_err(E::custom)?;
                items.into_iter().try_for_each(|item| self.address(within, name, item))
            }
            Some(b'{') => self.members(text, |walker, member, value| {
                walker.check_name((within, Some(name)), member, ADDRESS_NAMES)?;
                match member {
                    "url" => walker.url(within, value, Form::Url),
                    // Most are base64, which has no colon; a reader that takes addresses there, too, would load them.
                    "data" | "file_data" if has_scheme(value.get()) => walker.url(within, value, Form::Url),
                    "file_url" => walker.url(within, value, Form::FileUrl { has_name: false }),
                    "id" | "file_id" | "content_hash" if value.get() != "null" => {
                        walker.reference(within, if member == "id" { name } else { member })
                    }
                    _ => Ok(()),
                }
            }),
            _ => Ok(()),
        }
    }

    /// Takes a `source` of Anthropic's form.
    fn source<E: serde::de::Error>(&mut self, within: &'static str, source: &'a RawValue) -> Result<(), E> {
        // A search result has a text there, which isn't loaded.
        if !source.get().starts_with('{') {
            return Ok(());
        }
        let mut has_url = false;
        self.members(source.get(), |walker, member, value| {
            walker.check_name((within, Some("source")), member, ADDRESS_NAMES)?;
            match member {
                "url" if value.get() != "null" => {
                    if has_url {
                        let message = "A `source` has one `url`.";
                        return walker.refuse(unsupported(format!("{within}.source.url"), message));
                    }
                    has_url = true;
                    walker.url_at(within, value, Form::Source, source.get())
                }
                "file_id" if value.get() != "null" => walker.reference(within, "file_id"),
                "content" => {
                    let walk = Walk { walker, place: Place::Contents { depth: 1 }, within };
                    let mut deserializer = serde_json::Deserializer::from_str(value.get());
                    walk.deserialize(&mut deserializer).map(drop).map_err(E::custom)
                }
                _ => Ok(()),
            }
        })
    }

    fn url<E: serde::de::Error>(
        &mut self,
        within: &'static str,
        value: &'a RawValue,
        form: Form,
    ) -> Result<(), E> {
        let text = value.get();
        match form {
            Form::FileUrl { .. } => {
                // Between the name and its value are a colon and white space.
                let Range { start, end } = self.place(text);
                let before = self.text.as_bytes().get(..start).unwrap_or_default();
                let quote = memchr::memrchr(b'"', before).unwrap_or_default();
                let name_at = memchr::memrchr(b'"', before.get(..quote).unwrap_or_default());
                let whole = self.text.get(name_at.unwrap_or_default()..end).unwrap_or_default();
                self.url_at(within, value, form, whole)
            }
            Form::Url | Form::Source => self.url_at(within, value, form, text),
        }
    }

    fn url_at<E: serde::de::Error>(
        &mut self,
        within: &'static str,
        value: &'a RawValue,
        form: Form,
        whole: &'a str,
    ) -> Result<(), E> {
        let text = value.get();
        if !text.starts_with('"') || text == "\"\"" || text.starts_with("\"data:") {
            return Ok(());
        }
        let url: Cow<'_, str> = serde_json::from_str::<Name<'_>>(text).map_err(E::custom)?.0;
        let scheme = match scheme(&url) {
            Some("data") => return Ok(()),
            Some("http" | "https") => Scheme::Web,
            Some(scheme) if scheme.eq_ignore_ascii_case("data") => return Ok(()),
            Some(scheme) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
                Scheme::Web
            }
            Some(scheme) if !scheme.eq_ignore_ascii_case("file") => Scheme::Other,
            _ => Scheme::Local,
        };
        if self.survey.media.len() == MAX_MEDIA {
            return self.refuse(too_many("The body has more than 64 addresses of media."));
        }
        // Only one of the web is loaded.
        let url = if scheme == Scheme::Web { url.into_owned() } else { String::new() };
        self.survey.media.push(Media { scheme, form, place: self.place(whole), url, within });
        Ok(())
    }

    /// Calls a function with each member of an object.
    fn members<E: serde::de::Error>(
        &mut self,
        object: &'a str,
        mut act: impl FnMut(&mut Self, &str, &'a RawValue) -> Result<(), E>,
    ) -> Result<(), E> {
        let Pairs(pairs) = serde_json::from_str(object).map_err(E::custom)?;
        pairs.into_iter().try_for_each(|(name, value)| act(self, &name, value))
    }
}

fn too_many(message: &str) -> Error {
    Error::invalid(vec![Detail { param: "body".to_owned(), code: "too_many", message: message.to_owned() }])
}

/// Returns what is before the colon of an address.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    (!scheme.is_empty() && scheme.bytes().all(fits)).then_some(scheme)
}

/// Returns `true` for a string of JSON that begins like an address.
fn has_scheme(text: &str) -> bool {
    const MAX_SCHEME: usize = 64;
    text.starts_with('"') && text.bytes().take(MAX_SCHEME).any(|byte| matches!(byte, b':' | b'\\'))
}

/// The members of an object, in order.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> serde::Deserialize<'a> for Pairs<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'a> Visitor<'a> for PairsVisitor {
    type Value = Pairs<'a>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<Pairs<'a>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((Name(name), value)) = members.next_entry()? {
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

/// The request itself.
struct Request<'w, 'a>(&'w mut Walker<'a>);

impl<'a> Visitor<'a> for Request<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let Self(walker) = self;
        while let Some(Name(name)) = members.next_key()? {
            if let Some(meant) = lookalike(&name, KNOWN.iter().copied()) {
                return walker.refuse(misspelled("", &name, meant));
            }
            let place = match name.as_ref() {
                "tools" => Place::Tools { is_inner: false },
                _ => Place::Contents { depth: 0 },
            };
            let within = CONTENTS.into_iter().chain(["tools"]).find(|known| *known == name);
            let Some(within) = within else {
                let value: &'a RawValue = members.next_value()?;
                walker.field(&name, value)?;
                continue;
            };
            if members.next_value_seed(Walk { walker, place, within })? != Found::Null {
                walker.note_field(within)?;
            }
        }
        Ok(())
    }
}

/// A value whose items or parts, or whose tools, are looked at.
struct Walk<'w, 'a> {
    walker: &'w mut Walker<'a>,
    place: Place,
    /// The member of the request that it is in.
    within: &'static str,
}

#[derive(Clone, Copy)]
enum Place {
    /// `depth` is the number of contents around.
    Contents { depth: usize },
    /// `is_inner`: the tools are those of a tool or a message.
    Tools { is_inner: bool },
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Null,
    /// An empty text or list.
    Nothing,
    Something,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a> {
    type Value = Found;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a> {
    type Value = Found;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Null)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Something)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(Found::Something)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        Ok(Found::Something)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Something)
    }
    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        Ok(if text.is_empty() { Found::Nothing } else { Found::Something })
    }
    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Found, A::Error> {
        let Self { walker, place, within } = self;
        let mut found = Found::Nothing;
        while items.next_element_seed(Walk { walker: &mut *walker, place, within })?.is_some() {
            found = Found::Something;
        }
        Ok(found)
    }
    fn visit_map<A: MapAccess<'a>>(self, members: A) -> Result<Found, A::Error> {
        match self.place {
            Place::Contents { depth } => self.visit_item(members, depth)?,
            Place::Tools { is_inner } => self.visit_tool(members, is_inner)?,
        }
        Ok(Found::Something)
    }
}

impl<'a> Walk<'_, 'a> {
    /// Reads an item of a conversation, or a part of its contents.
    fn visit_item<A: MapAccess<'a>>(self, mut members: A, depth: usize) -> Result<(), A::Error> {
        let Self { walker, within, .. } = self;
        let mut item = Item::default();
        while let Some(Name(name)) = members.next_key()? {
            walker.check_name((within, None), &name, PART_NAMES)?;
            match name.as_ref() {
                "text" | "arguments" | "tool_calls" | "role" | "name" | "call_id" => {
                    members.next_value::<IgnoredAny>()?;
                }
                "content" | "output" => {
                    let walk = Walk { walker, place: Place::Contents { depth: depth + 1 }, within };
                    item.has_content |= members.next_value_seed(walk)? == Found::Something;
                }
                "tools" => {
                    let walk = Walk { walker, place: Place::Tools { is_inner: true }, within: "tools" };
                    members.next_value_seed(walk)?;
                }
                name => walker.item_member((within, depth), name, members.next_value()?, &mut item)?,
            }
        }
        walker.end_item(within, &item)
    }

    /// Reads a tool.
    fn visit_tool<A: MapAccess<'a>>(self, mut members: A, is_inner: bool) -> Result<(), A::Error> {
        let Self { walker, within, .. } = self;
        while let Some(Name(name)) = members.next_key()? {
            walker.check_name(("tools", None), &name, TOOL_NAMES)?;
            match name.as_ref() {
                "tools" => {
                    let walk = Walk { walker, place: Place::Tools { is_inner: true }, within };
                    members.next_value_seed(walk)?;
                }
                "type" => {
                    let value: &'a RawValue = members.next_value()?;
                    // What isn't a text is none of the types that are known.
                    let kind = match serde_json::from_str::<Name<'_>>(value.get()) {
                        Ok(Name(kind)) => kind,
                        Err(_) => Cow::Borrowed(""),
                    };
                    if value.get() != "null" {
                        let (name, class) = policy::tool(&kind, is_inner);
                        walker.note(name, class)?;
                    }
                }
                name @ ("vector_store_ids" | "file_ids") => {
                    if members.next_value::<&'a RawValue>()?.get() != "null" {
                        walker.reference("tools", name)?;
                    }
                }
                // One of its own that a tool gets is an object.
                "container" => {
                    let value: &'a RawValue = members.next_value()?;
                    if value.get().starts_with('{') {
                        walker.members(value.get(), |walker, member, value| match member {
                            "type" | "memory_limit" | "network_policy" => Ok(()),
                            _ if value.get() == "null" => Ok(()),
                            _ => walker.reference("tools", "container"),
                        })?;
                    } else if value.get() != "null" {
                        walker.reference("tools", "container")?;
                    }
                }
                "environment" => {
                    let value: &'a RawValue = members.next_value()?;
                    if !policy::is_local_environment(value.get()) {
                        walker.note("tools.environment", Class::HostedTool)?;
                    }
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
