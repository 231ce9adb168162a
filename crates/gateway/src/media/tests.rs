//! Media from servers on this machine. The tests allow private addresses.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use outbound::Network;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::operation::Operation;

/// A server that sends this answer to every request, and records the requests.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (kept, answer) = (Arc::clone(&kept), answer.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        let mut bytes = [0; 1_024];
                        match stream.read(&mut bytes).await {
                            Ok(0) | Err(_) => return,
                            Ok(read) => request.extend_from_slice(&bytes[..read]),
                        }
                    }
                    kept.lock().unwrap().push(String::from_utf8(request).unwrap());
                    stream.write_all(&answer).await.ok();
                });
            }
        });
        Self { port, requests }
    }

    async fn of(media_type: &str, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self::start([head.as_bytes(), body].concat()).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn private() -> MediaLoader {
    MediaLoader::new(Dialer::new(true, Network::of_machine(), None))
}

fn read(operation: Operation, body: &Value) -> ModelRequest {
    ModelRequest::read(operation, &Bytes::from(body.to_string())).unwrap()
}

async fn load(loader: &MediaLoader, operation: Operation, body: &Value) -> Result<Value, Error> {
    let memory = SharedBound::new(256 << 20);
    let loaded = loader.load(&read(operation, body), Holder::Trusted, &memory).await?;
    let text = loaded.request.body().clone();
    assert_eq!(
        memory.load().0,
        text.len(),
        "the memory of the loaded media is returned, and the body counts"
    );
    Ok(serde_json::from_slice(&text).unwrap())
}

fn image(url: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
}

#[tokio::test]
async fn each_form_gets_its_content_inline() {
    let png = Server::of("image/png; charset=binary", b"\x89PNG").await;
    let pdf = Server::of("Application/PDF", b"%PDF").await;
    let text = Server::of("text/plain", "a \"b\"".as_bytes()).await;
    let data = "data:image/png;base64,iVBORw==";
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"detail": "low", "url": png.url("/a?b=c#top")}},
        {"type": "image_url", "image_url": png.url("/a?b=c#top")},
        {"type": "text", "text": png.url("/left")},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}}]}]});
    let expected = json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"detail": "low", "url": data}},
        {"type": "image_url", "image_url": data},
        {"type": "text", "text": png.url("/left")},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}}]}]});
    assert_eq!(load(&private(), Operation::ChatCompletions, &body).await.unwrap(), expected);
    assert_eq!(png.asked(), 1, "an address is loaded once");
    let request = png.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_lowercase().contains("authorization"), "{request}");

    let body = json!({"model": "m", "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": png.url("/")},
        {"type": "input_file", "file_url": pdf.url("/")},
        {"type": "input_file", "filename": "n.pdf", "file_url": pdf.url("/")}]}]});
    let expected = json!({"model": "m", "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": data},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg==", "filename": "file.pdf"},
        {"type": "input_file", "filename": "n.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}]}]});
    assert_eq!(load(&private(), Operation::Responses, &body).await.unwrap(), expected);

    let source = |server: &Server| json!({"type": "url", "url": server.url("/")});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image", "source": source(&png), "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "content": [{"type": "document", "source": source(&pdf)}]},
        {"type": "document", "source": source(&text)}]}]});
    let expected = json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
            "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "content": [{"type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}}]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a \"b\""}}]}]});
    assert_eq!(load(&private(), Operation::Messages, &body).await.unwrap(), expected);
}

/// Returns the error that the client gets.
async fn refusal(loader: &MediaLoader, url: &str) -> Error {
    load(loader, Operation::ChatCompletions, &image(url)).await.unwrap_err()
}

#[tokio::test]
async fn every_failure_is_told_alike() {
    let expected = not_loaded("messages");
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let answers = [
        "HTTP/1.1 404 Not Found\r\ncontent-type: image/png\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/x\r\ncontent-type: image/png\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-type: image/\"x\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 5\r\n\r\na",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "",
    ];
    let mut urls = vec![
        format!("http://127.0.0.1:{unused}/"),
        format!("https://127.0.0.1:{unused}/"),
        "http://user:word@127.0.0.1/".to_owned(),
        "http://127.0.0.1:0/".to_owned(),
        "http://".to_owned(),
        "http://exa mple.com/".to_owned(),
        format!("http://127.0.0.1/{}", "a".repeat(MAX_URL_CHARS)),
    ];
    let mut servers = Vec::new();
    for answer in answers {
        servers.push(Server::start(answer.as_bytes().to_vec()).await);
        urls.push(servers.last().unwrap().url("/"));
    }
    for url in urls {
        let error = refusal(&private(), &url).await;
        assert_eq!(
            (error.code, error.public_message()),
            (Code::InvalidRequest, expected.public_message()),
            "{url}"
        );
        assert_eq!(error.param.as_deref(), Some("messages"));
    }
    assert_eq!(servers[1].asked(), 1, "a redirect isn't followed");
}

#[tokio::test]
async fn addresses_of_private_networks_are_not_asked() {
    let png = Server::of("image/png", b"a").await;
    let network = || Network {
        resolve: Box::new(|_, _| Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) })),
        ..Network::of_machine()
    };
    let public = MediaLoader::new(Dialer::new(false, network(), None));
    for url in [
        png.url("/"),
        format!("http://localhost:{}/", png.port),
        format!("http://example.com:{}/", png.port),
        format!("http://[::ffff:127.0.0.1]:{}/", png.port),
        format!("http://2130706433:{}/", png.port),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://1.1.1.1:22/".to_owned(),
    ] {
        let error = refusal(&public, &url).await;
        assert_eq!(
            (error.code, error.public_message()),
            (Code::InvalidRequest, not_loaded("").public_message()),
            "{url}"
        );
    }
    assert_eq!(png.asked(), 0);
    assert!(
        load(
            &MediaLoader::new(Dialer::new(true, network(), None)),
            Operation::ChatCompletions,
            &image(&png.url("/"))
        )
        .await
        .is_ok()
    );
}

#[tokio::test]
async fn all_media_of_a_call_have_one_bound() {
    let half = Server::of("image/png", &vec![0; MAX_BYTES / 2]).await;
    let more = Server::of("image/png", &vec![0; MAX_BYTES / 2 + 1]).await;
    let text = Server::of("text/plain", &vec![b'a'; MAX_TEXT_BYTES + 1]).await;
    let two = |first: &Server, second: &Server| {
        let part = |url: String| json!({"type": "image_url", "image_url": {"url": url}});
        json!({"model": "m", "messages": [{"role": "user", "content": [part(first.url("/1")), part(second.url("/2"))]}]})
    };
    assert!(load(&private(), Operation::ChatCompletions, &two(&half, &half)).await.is_ok());
    assert!(load(&private(), Operation::ChatCompletions, &two(&half, &more)).await.is_err());
    let body =
        json!({"model": "m", "input": [{"content": [{"type": "input_file", "file_url": text.url("/")}]}]});
    assert!(load(&private(), Operation::Responses, &body).await.is_err());
}

#[tokio::test]
async fn loading_takes_shares_of_memory_and_places() {
    let png = Server::of("image/png", &[0; 10_000]).await;
    let holder = Holder::Member { group: 1, member: 1 };
    let request = read(Operation::ChatCompletions, &image(&png.url("/")));
    let loader = private();
    let busy =
        |outcome: Result<Loaded, Error>| outcome.err().map(|error| error.code) == Some(Code::ServerBusy);
    assert!(busy(loader.load(&request, holder, &SharedBound::new(20_000)).await), "a member gets a third");
    assert!(loader.load(&request, holder, &SharedBound::new(100_000)).await.is_ok());
    let held = loader.places.try_take(Holder::Trusted, MAX_LOADS - 1).unwrap();
    assert!(busy(loader.load(&request, holder, &SharedBound::new(100_000)).await));
    drop(held);
    assert!(loader.load(&request, holder, &SharedBound::new(100_000)).await.is_ok());
    assert_eq!(loader.places.load().0, 0);
}
