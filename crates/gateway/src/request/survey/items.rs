//! The items of a conversation, the parts of their contents, and tools.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Walker;
use super::media::{Form, has_scheme};
use crate::count::quantity;
use crate::lenient::Name;
use crate::operation::Operation;
use crate::request::tools::{self, Class};

/// The members of items and parts that are read.
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

/// The members of tools that are read.
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
    "max_uses",
];

/// The properties of an item or a part, collected while its members are read.
#[derive(Default)]
struct Item<'a> {
    kind: Option<Cow<'a, str>>,
    has_id: bool,
    /// `true` if the item has its own content.
    has_content: bool,
    has_name: bool,
    file_urls: usize,
}

impl<'a> Walker<'a> {
    /// Handles a member of an item or a part.
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
            // vLLM and SGLang store the media of all users under these ids.
            "uuid" | "content_hash" if is_there && depth > 0 => self.reference(within, name)?,
            _ => {}
        }
        Ok(())
    }

    /// Finishes an item after all its members were read.
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
}

/// A visitor for a value with items, parts or tools.
pub(super) struct Walk<'w, 'a> {
    pub(super) walker: &'w mut Walker<'a>,
    pub(super) place: Place,
    /// The member of the request that contains the value.
    pub(super) within: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Place {
    /// `depth` is the number of enclosing contents.
    Contents { depth: usize },
    /// `is_inner` is `true` for the tools of a tool or a message.
    Tools { is_inner: bool },
}

/// The result of a visit: the value is null, is empty, or has content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Null,
    /// An empty string or list.
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
        let (mut searches_web, mut max_uses) = (false, None);
        while let Some(Name(name)) = members.next_key()? {
            walker.check_name(("tools", None), &name, TOOL_NAMES)?;
            match name.as_ref() {
                "tools" => {
                    let walk = Walk { walker, place: Place::Tools { is_inner: true }, within };
                    members.next_value_seed(walk)?;
                }
                "type" => {
                    let value: &'a RawValue = members.next_value()?;
                    // A type that isn't a string counts as unknown.
                    let kind = match serde_json::from_str::<Name<'_>>(value.get()) {
                        Ok(Name(kind)) => kind,
                        Err(_) => Cow::Borrowed(""),
                    };
                    searches_web = tools::is_web_search(&kind);
                    if value.get() != "null" {
                        let (name, class) = tools::tool(&kind, is_inner);
                        walker.note(name, class)?;
                    }
                }
                "max_uses" => max_uses = quantity(members.next_value::<&'a RawValue>()?.get().as_bytes()),
                name @ ("vector_store_ids" | "file_ids") => {
                    if members.next_value::<&'a RawValue>()?.get() != "null" {
                        walker.reference("tools", name)?;
                    }
                }
                // An object describes a new container for the tool.
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
                    if !tools::is_local_environment(value.get()) {
                        walker.note("tools.environment", Class::HostedTool)?;
                    }
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        if searches_web {
            // Only Anthropic's API has `max_uses`.
            let max_uses = max_uses.filter(|_| walker.operation == Operation::Messages);
            walker.survey.searches.add_tool(max_uses);
        }
        Ok(())
    }
}
