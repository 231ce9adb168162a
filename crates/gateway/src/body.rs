//! The body of an upstream's response.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use kernel::shares::Permit;
use kernel::turns::Turns;
use tokio::time::{Instant, sleep, timeout};

use crate::demo::DemoAnswer;
use crate::memory::{can_have, grown};
use crate::transport::sockets::SocketState;

/// The timeout for the end of a body after its last event.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The initial capacity for a body of unknown length.
const UNKNOWN_BYTES: usize = 64 << 10;
/// The memory of a piece that has been read but not appended: hyper's buffer has at most about 400 KiB.
const PIECE_BYTES: usize = 512 << 10;
/// The number of bytes that are kept of a body that is too long.
const TAIL_BYTES: usize = 16 << 10;
/// The time between two attempts to take memory, and the total time for all attempts.
const MEMORY_RETRY: Duration = Duration::from_millis(20);
const MEMORY_TIMEOUT: Duration = Duration::from_secs(60);

/// A body as it arrives. Dropping it closes the connection to the upstream.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http(Incoming, SocketState),
    Demo(DemoAnswer),
    /// A test body that repeats an event as fast as it is read, and the number of events read.
    #[cfg(test)]
    Endless(Bytes, u64),
}

/// A body that was read to its end.
#[derive(Debug)]
pub(crate) enum Whole {
    Body(Bytes),
    /// The body has too many bytes. Only its last bytes are kept.
    TooLong {
        tail: Bytes,
    },
}

impl UpstreamBody {
    /// Returns the body of a response.
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self::Http(body, head.extensions.get().cloned().unwrap_or_default())
    }

    /// Returns `true` if everything received was handed over, except the part that [`Self::next_chunk`]
    /// returns at once.
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Http(_, socket) => socket.is_drained(),
            Self::Demo(_) => true,
            #[cfg(test)]
            Self::Endless(..) => true,
        }
    }

    /// Returns the number of reads of the connection that found no data.
    pub(crate) fn empty_reads(&self) -> u64 {
        match self {
            Self::Http(_, socket) => socket.empty_reads(),
            Self::Demo(_) => 0,
            #[cfg(test)]
            Self::Endless(_, events) => *events,
        }
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The connection ends too early, for the returned reason.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Demo(answer) => Ok(answer.next_chunk()),
            #[cfg(test)]
            Self::Endless(event, events) => {
                *events += 1;
                Ok(Some(event.clone()))
            }
            Self::Http(body, _) => loop {
                match body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(error.to_string()),
                    // Trailers aren't used.
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
        }
    }

    /// Returns the number of bytes, if it is known.
    fn length(&self) -> Option<usize> {
        match self {
            Self::Http(body, _) => body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()),
            Self::Demo(_) => None,
            #[cfg(test)]
            Self::Endless(..) => None,
        }
    }

    /// Reads the rest of the body after the last event, so that the connection can serve another call.
    pub(crate) fn finish(mut self) {
        if self.next_chunk().now_or_never().is_none() {
            drop(tokio::spawn(async move { timeout(FINISH_TIMEOUT, self.next_chunk()).await }));
        }
    }

    /// Reads the whole body, once memory for it is available. A body that is too long is also read to its
    /// end, because its end has the usage. Copies made later are short-lived and aren't counted.
    ///
    /// # Errors
    /// The connection ends too early, or other calls use all memory.
    pub(crate) async fn read_all(
        mut self,
        max_bytes: usize,
        memory: &mut Permit,
        turns: &Arc<Turns>,
    ) -> Result<Whole, ReadError> {
        let mut capacity = self.length().unwrap_or(UNKNOWN_BYTES);
        if capacity > max_bytes || !take(memory, capacity).await? {
            return self.read_tail(Vec::new()).await;
        }
        let Some(first) = self.next_chunk().await? else { return Ok(Whole::Body(Bytes::new())) };
        let Some(mut chunk) = self.next_chunk().await? else { return Ok(Whole::Body(first)) };
        let mut whole = Vec::from(first);
        loop {
            let length = whole.len() + chunk.len();
            if length > capacity {
                capacity = grown(length).min(max_bytes);
            }
            if length > max_bytes || !take(memory, capacity).await? {
                memory.shrink_to(0);
                whole.extend_from_slice(&chunk);
                return self.read_tail(whole).await;
            }
            let append = || {
                whole.reserve_exact(capacity - whole.len());
                whole.extend_from_slice(&chunk);
            };
            turns.run(memory.holder(), append).await;
            let Some(next) = self.next_chunk().await? else { break };
            chunk = next;
        }
        whole.shrink_to_fit();
        Ok(Whole::Body(whole.into()))
    }

    /// Reads to the end, and keeps only the last bytes.
    async fn read_tail(mut self, mut tail: Vec<u8>) -> Result<Whole, ReadError> {
        loop {
            if tail.len() > TAIL_BYTES {
                tail.drain(..tail.len() - TAIL_BYTES);
                tail.shrink_to(2 * TAIL_BYTES);
            }
            match self.next_chunk().await? {
                Some(chunk) => tail.extend_from_slice(&chunk),
                None => return Ok(Whole::TooLong { tail: tail.into() }),
            }
        }
    }
}

/// The reason why a body wasn't read to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReadError {
    /// The connection ended too early, for this reason.
    Cut(String),
    /// Other calls use all memory.
    NoMemory,
}

impl From<String> for ReadError {
    fn from(why: String) -> Self {
        Self::Cut(why)
    }
}

/// The reason why memory isn't available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoMemory {
    /// More is needed than the holder can ever get.
    TooMuch,
    /// Other calls use the memory.
    Busy,
}

/// Takes memory for a body of this capacity. Returns `false` if its holder can never get that much.
async fn take(memory: &mut Permit, capacity: usize) -> Result<bool, ReadError> {
    match wait_for_memory(memory, capacity + PIECE_BYTES).await {
        Ok(()) => Ok(true),
        Err(NoMemory::TooMuch) => Ok(false),
        Err(NoMemory::Busy) => Err(ReadError::NoMemory),
    }
}

/// Waits until this much memory is free, and takes it. Meanwhile, the rest of the answer isn't read. The call
/// has a separate deadline.
///
/// # Errors
/// The holder can never get that much, or doesn't get it in time.
async fn wait_for_memory(memory: &mut Permit, bytes: usize) -> Result<(), NoMemory> {
    let until = Instant::now() + MEMORY_TIMEOUT;
    while !memory.grow_to(bytes) {
        if !can_have(memory.holder(), bytes) {
            return Err(NoMemory::TooMuch);
        }
        if Instant::now() >= until {
            return Err(NoMemory::Busy);
        }
        sleep(MEMORY_RETRY).await;
    }
    Ok(())
}

/// Takes memory for a growing buffer that has this length and gets one more piece, like [`wait_for_memory`].
pub(crate) async fn wait_to_grow(memory: &mut Permit, length: usize) -> Result<(), NoMemory> {
    wait_for_memory(memory, grown(length) + PIECE_BYTES).await
}

/// An answer that holds its memory until its last byte is written.
struct HeldAnswer {
    body: Bytes,
    _memory: Permit,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns a body that releases its memory once all its parts are dropped.
pub(crate) fn holding(body: Bytes, mut memory: Permit) -> Bytes {
    memory.shrink_to(body.len());
    Bytes::from_owner(HeldAnswer { body, _memory: memory })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use http::{Request, Uri};
    use http_body_util::Empty;
    use hyper_util::client::legacy::Client;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;
    use kernel::shares::{Holder, SharedBound};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::memory::{LARGE_BYTES, MAX_MEMORY_BYTES};
    use crate::opening::MAX_PLAIN_BYTES;
    use crate::sse::MAX_EVENT_BYTES;
    use crate::transport::sockets::SocketConnector;

    const MEMBER: Holder = Holder::Member { group: 1, member: 1 };
    /// The maximum size of a request.
    const REQUEST_BYTES: usize = 16 << 20;

    /// Returns the body of a response whose bytes are all written by `write`.
    pub(crate) async fn served<W: Future<Output = ()> + Send + 'static>(
        write: impl FnOnce(TcpStream) -> W + Send + 'static,
    ) -> UpstreamBody {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(tokio::spawn(async move {
            let (mut connection, mut request) = (listener.accept().await.unwrap().0, Vec::new());
            while !request.ends_with(b"\r\n\r\n") {
                connection.read_buf(&mut request).await.unwrap();
            }
            write(connection).await;
        }));
        let connector = SocketConnector(HttpConnector::new());
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = format!("http://{address}/").parse::<Uri>().unwrap();
        UpstreamBody::of(client.request(request).await.unwrap())
    }

    async fn plain(length: usize, has_length: bool) -> UpstreamBody {
        let head =
            if has_length { format!("content-length: {length}") } else { "connection: close".to_owned() };
        served(async move |mut connection: TcpStream| {
            connection.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await.unwrap();
            let piece = vec![b'7'; 1 << 20];
            for at in (0..length).step_by(piece.len()) {
                // A body without memory isn't read to its end.
                if connection.write_all(&piece[..piece.len().min(length - at)]).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// 2,048 vectors of 1,024 numbers with 20 digits take 44 MiB.
    #[tokio::test]
    async fn large_answers_are_read_with_the_memory_of_one_key() {
        for (mib, has_length) in [(44, true), (64, true), (64, false)] {
            let bound = SharedBound::new(MAX_MEMORY_BYTES);
            let _request = bound.try_take(MEMBER, REQUEST_BYTES).unwrap();
            let (mut memory, turns) = (bound.none(MEMBER), Turns::per_processor());
            let body = plain(mib << 20, has_length).await;
            let reading = body.read_all(MAX_PLAIN_BYTES, &mut memory, &turns);
            let whole =
                timeout(Duration::from_secs(30), Box::pin(reading)).await.expect("it waits for memory");
            let Ok(Whole::Body(body)) = whole else { panic!("{mib} MiB aren't read") };
            assert!(body.len() == mib << 20 && body.iter().all(|byte| *byte == b'7'));
        }
    }

    #[tokio::test]
    async fn answer_that_is_too_long_is_read_to_its_end() {
        for (length, has_length) in [(65 << 20, true), (65 << 20, false)] {
            let bound = SharedBound::new(MAX_MEMORY_BYTES);
            let (mut memory, turns) = (bound.none(MEMBER), Turns::per_processor());
            let body = plain(length, has_length).await;
            let reading = Box::pin(body.read_all(MAX_PLAIN_BYTES, &mut memory, &turns));
            let Ok(Whole::TooLong { tail }) = reading.await else { panic!() };
            assert!(tail.ends_with(b"777") && bound.load().0 == 0);
        }
    }

    /// Without this check, a call that needs too much memory would wait forever.
    #[tokio::test]
    async fn what_nobody_can_get_is_not_waited_for() {
        let bound = SharedBound::new(MAX_MEMORY_BYTES);
        let mut memory = bound.none(MEMBER);
        let waiting = timeout(Duration::from_secs(10), wait_for_memory(&mut memory, 100 << 20));
        assert_eq!(waiting.await, Ok(Err(NoMemory::TooMuch)));
        assert_eq!(wait_for_memory(&mut memory, 80 << 20).await, Ok(()));
    }

    #[test]
    fn largest_answers_and_events_fit_beside_the_largest_request() {
        for bytes in [MAX_PLAIN_BYTES, MAX_EVENT_BYTES] {
            assert!(can_have(MEMBER, REQUEST_BYTES + grown(bytes) + PIECE_BYTES), "{bytes}");
        }
        assert!(!can_have(MEMBER, MAX_MEMORY_BYTES / 3 + 1) && can_have(MEMBER, LARGE_BYTES));
    }
}
