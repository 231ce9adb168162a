//! Addresses of images and other media, and the forms of their replacements.

use std::ops::Range;

/// The address of something to load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Media {
    pub(crate) scheme: Scheme,
    pub(crate) form: Form,
    /// The position in the body where the content is inserted instead.
    pub(crate) place: Range<usize>,
    /// The address.
    pub(crate) url: String,
    /// The member of the request that contains it.
    pub(crate) within: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// `http` or `https`
    Web,
    /// Another scheme.
    Other,
    /// `file`, or no scheme: a path.
    Local,
}

/// The form in which loaded content replaces an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The place is a string, which becomes a data URL.
    Url,
    /// The place is `"file_url": "…"`, which becomes `file_data`.
    FileUrl { has_name: bool },
    /// The place is a `source` of Anthropic's form.
    Source,
}

/// Returns `true` for a JSON string that begins like an address.
pub(super) fn has_scheme(text: &str) -> bool {
    const MAX_SCHEME: usize = 64;
    text.starts_with('"') && text.bytes().take(MAX_SCHEME).any(|byte| matches!(byte, b':' | b'\\'))
}
