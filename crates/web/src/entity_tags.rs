//! Entity tags: the version of an object in the header `ETag` of a reply, and the expected versions in
//! `If-Match` of a change (docs/contract/README.md#concurrent-changes).

use http::{HeaderMap, HeaderValue, header};

use kernel::error::{Detail, Error};
use kernel::version::{Expected, Version};

/// The name of the header in the OpenAPI document.
pub const IF_MATCH: &str = "If-Match";

/// Returns the value of `ETag` for a version.
pub fn entity_tag(version: Version) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(&format!("\"{version}\"")).map_err(Error::internal)
}

/// Reads `If-Match`; without it, any version is expected.
///
/// # Errors
/// 400 if it is malformed.
pub(crate) fn expected(headers: &HeaderMap) -> Result<Expected, Error> {
    let lines: Vec<_> = headers.get_all(header::IF_MATCH).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return Ok(Expected::Any);
    }
    parse_if_match(&lines.join(&b',')).ok_or_else(|| {
        let message = "`If-Match` must be `*`, or entity tags in double quotes, as in `ETag`, separated by \
                       commas.";
        let detail =
            Detail { param: "if-match".to_owned(), code: "invalid_entity_tag", message: message.to_owned() };
        Error::invalid(vec![detail])
    })
}

/// Parses `If-Match` (RFC 9110, section 13.1.1); `None` if it is malformed.
///
/// Ignores weak tags, which never match, and tags that this service can't have created.
fn parse_if_match(value: &[u8]) -> Option<Expected> {
    if value.trim_ascii() == b"*" {
        return Some(Expected::Any);
    }
    let (mut versions, mut count, mut rest) = (Vec::new(), 0_usize, value);
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(b",") {
            // Empty elements are allowed (RFC 9110, section 5.6.1.2).
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return (count > 0).then_some(Expected::OneOf(versions));
        }
        let (is_weak, quoted) = match rest.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (opaque, after) = split_quoted(quoted)?;
        let version = std::str::from_utf8(opaque).ok().and_then(Version::parse);
        versions.extend(version.filter(|_| !is_weak));
        count += 1;
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
}

/// Splits off a quoted opaque tag. Returns the tag without its quotes, and the text after it (RFC 9110,
/// section 8.8.3).
fn split_quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| *byte == b'"')?;
    let (opaque, after) = text.split_at_checked(end)?;
    let is_valid = opaque.iter().all(|byte| matches!(byte, 0x21..=0x7e | 0x80..=0xff));
    Some((opaque, after.strip_prefix(b"\"")?)).filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the expectation of `If-Match` with these lines: `any`, `malformed`, or the first digit of each
    /// version.
    fn read(lines: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::IF_MATCH, HeaderValue::from_bytes(line).unwrap());
        }
        match expected(&headers) {
            Ok(Expected::Any) => "any".to_owned(),
            Ok(Expected::OneOf(versions)) => {
                versions.iter().filter_map(|version| version.to_string().chars().next()).collect()
            }
            Err(error) => {
                let found: Vec<_> =
                    error.details.iter().map(|detail| (detail.param.as_str(), detail.code)).collect();
                assert_eq!(found, [("if-match", "invalid_entity_tag")]);
                "malformed".to_owned()
            }
        }
    }

    #[test]
    fn if_match_is_read_as_the_standard_says() {
        let [a, b] = ["a", "b"].map(|digit| format!("\"{}\"", digit.repeat(32)));
        let cases: [(&[&str], &str); 31] = [
            (&[], "any"),
            (&["*"], "any"),
            (&[" * "], "any"),
            (&[&a], "a"),
            (&[&format!("{a},{b}")], "ab"),
            (&[&format!(" {a} \t,\t{b} ")], "ab"),
            (&[&format!(",, {a} ,,{b},")], "ab"),
            (&[&a, &b], "ab"),
            (&[&a, ""], "a"),
            // Valid tags that this service never creates.
            (&["\"\""], ""),
            (&["\"x\""], ""),
            (&["\"x,y\""], ""),
            (&[&format!("\"x, {b}")], "malformed"),
            (&[&format!("\"*\", {b}")], "b"),
            (&[&a.to_uppercase()], ""),
            // Weak tags never match.
            (&[&format!("W/{a}")], ""),
            (&[&format!("W/{a}, {b}")], "b"),
            (&[&format!("w/{a}")], "malformed"),
            (&[&format!("W/ {a}")], "malformed"),
            (&["W/"], "malformed"),
            (&[""], "malformed"),
            (&[","], "malformed"),
            (&["x"], "malformed"),
            (&[a.trim_matches('"')], "malformed"),
            (&[a.trim_start_matches('"')], "malformed"),
            (&[a.trim_end_matches('"')], "malformed"),
            (&["\""], "malformed"),
            (&["\"x y\""], "malformed"),
            (&[&format!("{a} {b}")], "malformed"),
            (&[&format!("{a}{b}")], "malformed"),
            (&[&format!("*, {a}")], "malformed"),
        ];
        for (lines, expected) in cases {
            let bytes: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(read(&bytes), expected, "{lines:?}");
        }
        assert_eq!(read(&[b"*", b"*"]), "malformed");
        assert_eq!(read(&[b"\"\xfc\""]), "", "bytes beyond ASCII are allowed in a tag");
        assert_eq!(read(&[b"\xfc"]), "malformed");
    }

    #[test]
    fn entity_tag_is_read_back() {
        let version = Version::of(&"x").unwrap();
        let value = entity_tag(version).unwrap();
        assert_eq!(parse_if_match(value.as_bytes()), Some(Expected::OneOf(vec![version])));
    }
}
