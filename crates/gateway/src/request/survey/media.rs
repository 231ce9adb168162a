//! URLs of images and other media, and the forms in which their content replaces them.

use std::ops::Range;

/// Media that a request refers to by URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Media {
    pub(crate) scheme: Scheme,
    pub(crate) form: Form,
    /// The range of the body that the content replaces.
    pub(crate) place: Range<usize>,
    /// The URL; empty unless the scheme is [`Scheme::Web`].
    pub(crate) url: String,
    /// The member of the request that contains the URL.
    pub(crate) within: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// `http` or `https`
    Web,
    /// Another scheme.
    Other,
    /// `file`, or a path without a scheme.
    Local,
}

/// The form in which loaded content replaces a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The replaced text is a string. The content becomes a data URL.
    Url,
    /// The replaced text is `"file_url": "…"`. The content becomes `file_data`.
    FileUrl { has_name: bool },
    /// The replaced text is a `source` in Anthropic's form.
    Source,
}

/// Returns `true` for a JSON string that may begin with a scheme.
pub(super) fn has_scheme(text: &str) -> bool {
    const MAX_SCHEME: usize = 64;
    text.starts_with('"') && text.bytes().take(MAX_SCHEME).any(|byte| matches!(byte, b':' | b'\\'))
}
