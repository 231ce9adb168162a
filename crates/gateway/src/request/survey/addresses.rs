//! Parsing of URLs of images and other media.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use super::items::{Place, Walk};
use super::media::{Form, Media, Scheme, has_scheme};
use super::{Walker, too_many};
use crate::lenient::Name;
use crate::names::unsupported;

/// Maximum number of media URLs in a request.
const MAX_MEDIA: usize = 64;

/// The members of an object with a URL.
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

impl<'a> Walker<'a> {
    /// Handles the value of a member with a location: a URL, or an object with a URL.
    pub(super) fn address<E: serde::de::Error>(
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
                    // Most values are base64, which has no colon. Some servers also accept URLs here, and
                    // would load them.
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

    /// Handles a `source` of Anthropic's form.
    pub(super) fn source<E: serde::de::Error>(
        &mut self,
        within: &'static str,
        source: &'a RawValue,
    ) -> Result<(), E> {
        // The `source` of a search result is text, which isn't loaded.
        if !source.get().starts_with('{') {
            return Ok(());
        }
        let mut has_url = false;
        self.members(source.get(), |walker, member, value| {
            walker.check_name((within, Some("source")), member, ADDRESS_NAMES)?;
            match member {
                "url" if value.get() != "null" => {
                    if has_url {
                        let message = "A `source` can have only one `url`.";
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

    pub(super) fn url<E: serde::de::Error>(
        &mut self,
        within: &'static str,
        value: &'a RawValue,
        form: Form,
    ) -> Result<(), E> {
        let text = value.get();
        match form {
            Form::FileUrl { .. } => {
                // A colon and white space separate the name from its value.
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
        // Only web URLs are loaded.
        let url = if scheme == Scheme::Web { url.into_owned() } else { String::new() };
        self.survey.media.push(Media { scheme, form, place: self.place(whole), url, within });
        Ok(())
    }
}

/// Returns the part of a URL before the colon; `None` if it isn't a scheme.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    (!scheme.is_empty() && scheme.bytes().all(fits)).then_some(scheme)
}
