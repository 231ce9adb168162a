//! The static files of the pages: a style sheet, a script and an icon. Their paths contain a hash of the
//! content, so that browsers can cache them forever.

use std::sync::LazyLock;

use http::{HeaderValue, Response, header};
use schemars::SchemaGenerator;

use api::Api;
use api::gate::{Access, AccessDoc, Call};
use kernel::error::{Code, Error};
use kernel::secrets::sha256;
use web::input::NoInput;
use web::reply::{self, Body, Reply};

use crate::console::Console;

/// A static file.
#[derive(Debug)]
pub struct File {
    name: &'static str,
    content_type: &'static str,
    served: LazyLock<Served>,
}

/// The content of a file, as it is sent to browsers.
#[derive(Debug)]
struct Served {
    content: String,
    /// The first 12 hexadecimal digits of the content's SHA-256.
    hash: String,
}

impl Served {
    /// Removes indentation, empty lines, and lines that contain only a comment.
    fn of(source: &str) -> Self {
        let is_comment =
            |line: &str| line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
        let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !is_comment(line));
        Self::whole(lines.flat_map(|line| [line, "\n"]).collect())
    }

    /// Like [`Self::of`], for a style sheet. Also removes the spaces around the punctuation of its rules.
    fn of_style(source: &str) -> Self {
        let signs = [("; ", ";"), (": ", ":"), (" { ", "{"), (" {", "{"), (" }", "}")];
        let content = Self::of(source).content;
        Self::whole(signs.iter().fold(content, |content, (from, to)| content.replace(from, to)))
    }

    fn whole(content: String) -> Self {
        let hash = sha256(content.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { content, hash }
    }
}

/// All static files.
static FILES: [File; 3] = [
    File {
        name: "console.css",
        content_type: "text/css; charset=utf-8",
        served: LazyLock::new(|| Served::of_style(include_str!("../assets/console.css"))),
    },
    File {
        name: "console.js",
        content_type: "text/javascript; charset=utf-8",
        served: LazyLock::new(|| Served::of(include_str!("../assets/console.js"))),
    },
    File {
        name: "icon.svg",
        content_type: "image/svg+xml",
        served: LazyLock::new(|| Served::of(include_str!("../assets/icon.svg"))),
    },
];

/// Returns the path of a file, without `/console`.
pub fn path(name: &str) -> String {
    let file = FILES.iter().find(|file| file.name == name);
    file.map_or_else(String::new, |file| format!("/assets/{}/{name}", file.served.hash))
}

/// The public access to the file in the path.
#[derive(Clone, Copy, Debug)]
pub struct Asset;

impl Access<Api> for Asset {
    type Scope = &'static File;
    async fn admit(&self, _: &Api, call: &mut Call) -> Result<&'static File, Error> {
        let (hash, name) = (call.path("hash"), call.path("name"));
        let found = FILES.iter().find(|file| file.name == name && file.served.hash == hash);
        Ok(found.ok_or(Code::UnknownPath)?)
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(None, "public").before_ready()
    }
}

/// Get a static file.
pub async fn read(_: Console, file: &'static File, _: NoInput) -> Result<&'static File, Error> {
    Ok(file)
}

impl Reply for &'static File {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = Response::new(reply::whole(self.served.content.as_bytes()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(header::CACHE_CONTROL, for_ever);
        Ok(response)
    }

    fn content_type() -> &'static str {
        "application/octet-stream"
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_people_read_is_not_served() {
        let served = Served::of("/* A. */\na { b: url(//c) } /* d */\n\n@media e {\n  f { g: h }\n}\n// i\n");
        assert_eq!(served.content, "a { b: url(//c) } /* d */\n@media e {\nf { g: h }\n}\n");
        assert_ne!(served.hash, Served::of("").hash);
        let served = Served::of_style("a:hover > b { c: d; e: f }\n@media (g: h) { i { j: k; } }\n");
        assert_eq!(served.content, "a:hover > b{c:d;e:f}\n@media (g:h){i{j:k;}}\n");
    }
}
