//! Images and other media that a request refers to by URL. The gateway loads them from the public Internet
//! and sends them inline to the upstream. So a client can't make an inference server send requests within its
//! network, and the server never sees the URL.
//!
//! Connections are made by [`outbound`]. Redirects aren't followed, and every failure has the same message
//! for the client, so that it doesn't reveal whether a server exists at an address.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use outbound::{Connection, Dialer};
use tokio::time::timeout;

use crate::names::shown;
use crate::request::{Form, Media, ModelRequest};
use kernel::error::{Code, Error};
use kernel::shares::{Holder, Permit, SharedBound};
use kernel::urls::HttpUrl;

/// The maximum number of bytes of all media of a call.
pub const MAX_BYTES: usize = 20 << 20;
/// Maximum number of bytes of a plain-text file. A call reserves only as many tokens for it as for other
/// files, although text has a token for every few bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The timeout for loading all media of a call.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of media that a call loads at once.
const AT_ONCE: usize = 4;
/// The maximum number of media that all calls load at once.
const MAX_LOADS: usize = 64;
/// Maximum number of characters of a URL.
const MAX_URL_CHARS: usize = 8_192;

/// A loader of remote media.
pub struct MediaLoader {
    dialer: Dialer,
    places: Arc<SharedBound>,
}

/// The content loaded from a URL.
struct Content {
    /// The media type without parameters, such as `image/png`.
    media_type: String,
    bytes: Vec<u8>,
    /// The memory that the bytes occupy.
    _memory: Permit,
}

/// A request with its media inlined.
pub(crate) struct Loaded {
    pub(crate) request: ModelRequest,
    _memory: Permit,
}

/// The reason why media couldn't be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoadError {
    /// Other calls use the shared memory or turns.
    Busy,
    /// Any other reason, which isn't revealed.
    NotLoaded,
}

impl MediaLoader {
    pub fn new(dialer: Dialer) -> Self {
        Self { dialer, places: SharedBound::new(MAX_LOADS) }
    }

    /// Loads the media that a request refers to by web URLs, and returns the request with their content.
    ///
    /// # Errors
    /// 400 `invalid_request` if a URL can't be loaded, for any reason. 503 `server_busy` if other calls load
    /// too much.
    pub(crate) async fn load(
        &self,
        request: &ModelRequest,
        holder: Holder,
        memory: &Arc<SharedBound>,
    ) -> Result<Loaded, Error> {
        let media: Vec<_> = request.web_media().collect();
        let loading = timeout(TIMEOUT, self.load_all(&media, holder, memory));
        let contents = loading.await.unwrap_or(Err(LoadError::NotLoaded));
        let explain = |error| match error {
            LoadError::Busy => Code::ServerBusy.into(),
            LoadError::NotLoaded => not_loaded(media.first().map_or("messages", |media| media.within)),
        };
        let contents = contents.map_err(explain)?;
        let body = request.body_with(|media| Some(contents.get(media.url.as_str())?.in_place_of(media.form)));
        let memory = memory.try_take(holder, body.len()).ok_or(Code::ServerBusy)?;
        Ok(Loaded { request: ModelRequest::read(request.operation, &body)?, _memory: memory })
    }

    /// Loads each URL once.
    async fn load_all<'a>(
        &self,
        media: &[&'a Media],
        holder: Holder,
        memory: &Arc<SharedBound>,
    ) -> Result<BTreeMap<&'a str, Content>, LoadError> {
        // Plain text is accepted only if every part that refers to its URL can contain text.
        let mut wanted = BTreeMap::new();
        for media in media {
            let takes_text = !matches!(media.form, Form::Url);
            wanted.entry(media.url.as_str()).and_modify(|takes| *takes &= takes_text).or_insert(takes_text);
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let left = AtomicUsize::new(MAX_BYTES);
        let mut contents = BTreeMap::new();
        for group in wanted.chunks(AT_ONCE) {
            let loads = group.iter().map(async |(url, takes_text)| {
                let _place = self.places.try_take(holder, 1).ok_or(LoadError::Busy)?;
                let content = self.load_one(url, *takes_text, &left, memory.none(holder)).await?;
                Ok((*url, content))
            });
            contents.extend(try_join_all(loads).await?);
        }
        Ok(contents)
    }

    async fn load_one(
        &self,
        url: &str,
        takes_text: bool,
        left: &AtomicUsize,
        memory: Permit,
    ) -> Result<Content, LoadError> {
        // The fragment after `#` isn't part of a request.
        let url = url.split('#').next().and_then(|url| HttpUrl::parse_of_customer(url, MAX_URL_CHARS));
        let url = url.filter(|url| self.dialer.allows_private() || url.has_usual_port());
        let url = url.ok_or(LoadError::NotLoaded)?;
        let stream = self.dialer.dial(&url).await.map_err(|_| LoadError::NotLoaded)?;
        get(stream, &url, Reading { takes_text, left, memory }).await
    }
}

fn not_loaded(within: &'static str) -> Error {
    let message = "An image or other file couldn't be loaded from its URL. The URL must be public, and the \
                   file must be an image, audio, video, PDF or plain text. The files of a request can be at \
                   most 20 MB in total. You can also send a file inline, as a data URL.";
    Error::new(Code::InvalidRequest).param(within).message(message)
}

/// The limits for reading one URL.
struct Reading<'a> {
    takes_text: bool,
    /// The number of bytes that the call may still load.
    left: &'a AtomicUsize,
    memory: Permit,
}

/// Requests the content of a URL on a new connection.
async fn get(stream: Box<dyn Connection>, url: &HttpUrl, reading: Reading<'_>) -> Result<Content, LoadError> {
    let handshake = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| LoadError::NotLoaded)?;
    let request = Request::get(url.target())
        .header(header::HOST, url.host_header())
        .header(header::ACCEPT, "image/*, audio/*, video/*, application/pdf, text/plain")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, concat!("tollkeeper/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(|_| LoadError::NotLoaded)?;
    // The connection is closed when this function returns.
    let mut connection = pin!(connection);
    let mut read = pin!(async {
        let response = sender.send_request(request).await.map_err(|_| LoadError::NotLoaded)?;
        reading.read(response).await
    });
    tokio::select! {
        biased;
        content = &mut read => content,
        // The data that has arrived still has to be read.
        _ = &mut connection => read.await,
    }
}

impl Reading<'_> {
    async fn read(mut self, response: http::Response<hyper::body::Incoming>) -> Result<Content, LoadError> {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let is_encoded = header(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
        let media_type = header(header::CONTENT_TYPE).and_then(|text| self.media_type(text));
        let media_type = media_type.filter(|_| response.status() == StatusCode::OK && !is_encoded);
        let media_type = media_type.ok_or(LoadError::NotLoaded)?;
        let most = if media_type == "text/plain" { MAX_TEXT_BYTES } else { MAX_BYTES };
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| LoadError::NotLoaded)?;
            let Ok(data) = frame.into_data() else { continue };
            let take = |left: usize| left.checked_sub(data.len());
            let is_within = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
            if !is_within || bytes.len() + data.len() > most {
                return Err(LoadError::NotLoaded);
            }
            if !self.memory.grow_to(bytes.len() + data.len()) {
                return Err(LoadError::Busy);
            }
            bytes.extend_from_slice(&data);
        }
        if bytes.is_empty() || (media_type == "text/plain" && std::str::from_utf8(&bytes).is_err()) {
            return Err(LoadError::NotLoaded);
        }
        Ok(Content { media_type, bytes, _memory: self.memory })
    }

    /// Returns the media type without its parameters, if it may be forwarded.
    fn media_type(&self, header: &str) -> Option<String> {
        let essence = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (class, name) = essence.split_once('/')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let is_known = match class {
            "image" | "audio" | "video" => !name.is_empty() && name.bytes().all(is_name),
            _ => essence == "application/pdf" || (essence == "text/plain" && self.takes_text),
        };
        is_known.then(|| shown(&essence))
    }
}

impl Content {
    /// Returns the JSON that replaces a URL.
    fn in_place_of(&self, form: Form) -> String {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let Self { media_type, bytes, .. } = self;
        match form {
            Form::Url => format!("\"data:{media_type};base64,{}\"", STANDARD.encode(bytes)),
            Form::FileUrl { has_name } => {
                let name = match media_type.as_str() {
                    _ if has_name => "",
                    "application/pdf" => ",\"filename\":\"file.pdf\"",
                    "text/plain" => ",\"filename\":\"file.txt\"",
                    _ => ",\"filename\":\"file\"",
                };
                format!("\"file_data\":\"data:{media_type};base64,{}\"{name}", STANDARD.encode(bytes))
            }
            Form::Source if media_type == "text/plain" => {
                let text = serde_json::Value::from(String::from_utf8_lossy(bytes));
                format!("{{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":{text}}}")
            }
            Form::Source => {
                let data = STANDARD.encode(bytes);
                format!("{{\"type\":\"base64\",\"media_type\":\"{media_type}\",\"data\":\"{data}\"}}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
