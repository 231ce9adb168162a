//! Shared helpers for the unit tests.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http::Response;
use kernel::clock::Clock;
use kernel::error::Error;
use kernel::ids::RequestId;
use kernel::random::Random;
use kernel::shares::Holder;
use metrics::Metrics;

use crate::body_limit::BodyLimit;
use crate::call::Call;
use crate::frame::Frame;
use crate::reply::Body;
use crate::route::{Access, AccessDoc, ErrorShape, State};
use crate::settings::{Server, Settings};

/// A state without subjects.
#[derive(Clone)]
pub struct TestState(Arc<Frame>);

impl TestState {
    /// Returns a state that is ready.
    pub fn new() -> Self {
        let server = Server {
            head_timeout_seconds: 10,
            body_timeout_seconds: 30,
            write_timeout_seconds: 30,
            idle_timeout_seconds: 60,
            max_connections: 10,
            body_budget_bytes: 1024 * 1024,
            body_bytes_per_second: usize::MAX,
            hsts_seconds: 0,
        };
        let settings = Settings {
            server,
            trusted_proxies: vec![],
            cors_origins: vec![],
            allows_model_calls_from_browsers: false,
            log_access: true,
        };
        let frame =
            Frame::new(settings, Clock::System, &Random::system(), Arc::new(Metrics::default()), None);
        frame.set_ready();
        Self(Arc::new(frame))
    }
}

impl State for TestState {
    type Credential = ();

    fn frame(&self) -> &Arc<Frame> {
        &self.0
    }
    async fn check_again(&self, _: &mut Call<()>) -> Result<(), Error> {
        Ok(())
    }
    async fn confirm(&self) -> Result<(), Error> {
        Ok(())
    }

    fn holder(&self, call: &Call<()>) -> Holder {
        Holder::Network(call.address)
    }
    fn error_shape(_: &str) -> ErrorShape {
        ErrorShape::Enveloped
    }
    fn error_page(_: &Error, _: RequestId) -> Response<Body> {
        Response::default()
    }
    fn body_limit(_: &str) -> BodyLimit {
        BodyLimit::public(1024)
    }
}

/// An access that admits every caller.
pub struct AllowAll;

impl Access<TestState> for AllowAll {
    type Scope = ();
    async fn admit(&self, _: &TestState, _: &mut Call<()>) -> Result<(), Error> {
        Ok(())
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(None, "public")
    }
}

/// A writer that collects log lines.
#[derive(Clone, Default)]
pub struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    /// Returns the lines written since the last call.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A temporary folder that is removed when dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let name = format!("tollkeeper-server-{:032x}", u128::from_be_bytes(Random::system().bytes()));
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
