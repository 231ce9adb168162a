//! Shared helpers of the fuzz targets: an application with a new database and a fixed clock, and requests to
//! it.
//!
//! Each target asserts properties that hold for every input. docs/testing.md explains how to run the targets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::LazyLock;

use http::{HeaderMap, Method, Request, Uri, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollkeeper::api::gate::Call;
use tollkeeper::app::App;
use tollkeeper::clock::{Clock, Time};
use tollkeeper::config::Config;
use tollkeeper::ids::RequestId;
use tollkeeper::web::reply::Body;
use tollkeeper::web::route::Listener;

#[cfg(feature = "engine")]
pub use libfuzzer_sys::fuzz_target;

/// Defines a program that runs the inputs in the files given as arguments, as the fuzzing engine would. It
/// reproduces earlier findings.
#[cfg(not(feature = "engine"))]
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $type:ty| $body:expr) => {
        fn main() {
            $crate::for_each_file(|bytes| {
                let bytes = $crate::arbitrary::Unstructured::new(bytes);
                if let Ok($input) = <$type as $crate::arbitrary::Arbitrary>::arbitrary_take_rest(bytes) {
                    $body
                }
            });
        }
    };
}

#[cfg(not(feature = "engine"))]
#[doc(hidden)]
pub use arbitrary;

/// Calls a function with the content of each file that is given as an argument.
///
/// # Panics
/// Panics if a file can't be read.
#[cfg(not(feature = "engine"))]
pub fn for_each_file(mut act: impl FnMut(&[u8])) {
    for path in std::env::args_os().skip(1) {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        act(&bytes);
    }
}

/// The time of every input.
pub const NOW: &str = "2026-03-10T12:00:00.000Z";

/// An application, and the runtime on which it runs.
pub struct World {
    pub app: App,
    pub runtime: Runtime,
}

/// The single application of this process.
pub static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = folder();
    let environment = [
        ("TOLLKEEPER_DATA_DIR", folder.to_str().expect("a folder with a plain name")),
        ("TOLLKEEPER_LOG__ACCESS", "false"),
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(None, environment).expect("a good configuration");
    let app = App::new(config, Clock::fixed(now())).expect("an application");
    runtime.block_on(async {
        assert!(app.boot().await.is_ok(), "the application starts");
    });
    World { app, runtime }
});

/// Returns the time of the fixed clock.
pub fn now() -> Time {
    Time::parse(NOW).expect("a time")
}

/// Creates and returns a folder for this process in the temporary folder. The folder isn't removed, because
/// libFuzzer exits without cleanup.
pub fn folder() -> PathBuf {
    let path = std::env::temp_dir().join(format!("tollkeeper-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for this process");
    path
}

impl World {
    /// Builds a request as the gate receives it.
    pub fn call(&self, method: Method, headers: HeaderMap, body: impl Into<Vec<u8>>) -> Call {
        Call {
            method,
            uri: Uri::from_static("/"),
            headers,
            path: Vec::new(),
            address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            request_id: RequestId::new(now(), &self.app.random),
            body: Body::from(body.into()),
            form: None,
            caller: String::new(),
            credential: tollkeeper::api::gate::Credential::default(),
        }
    }

    /// Sends a POST request that must succeed, and returns its `data`.
    pub async fn post(&self, path: &str, token: Option<&str>, body: &Value) -> Value {
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Body::from(body.to_string());
        let request = request.body(body).expect("a request");
        let entrance = tollkeeper::api::routes::dispatcher(&self.app.api, Listener::Public);
        let answer = entrance.answer(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let mut answer: Value = serde_json::from_slice(&bytes).expect("a JSON body");
        assert_eq!(answer["status_code"], 200, "{path}: {answer}");
        answer["data"].take()
    }

    /// Creates a logged-in user with an API key.
    pub fn user(&self) -> TestUser {
        let password = "Correct-Horse-7-Staple";
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        self.runtime.block_on(async {
            let account = json!({"email": "ada@example.com", "password": password, "username": "ada"});
            self.post("/v1/auth/register", None, &account).await;
            let login = json!({"email": "ada@example.com", "password": password});
            let session = self.post("/v1/auth/login", None, &login).await;
            let access_token = text(&session["access_token"]);
            let name = json!({"name": "Research"});
            let organization = self.post("/v1/organizations", Some(&access_token), &name).await;
            let projects = format!("/v1/organizations/{}/projects", text(&organization["id"]));
            let project = self.post(&projects, Some(&access_token), &name).await;
            let keys = format!("{projects}/{}/api-keys", text(&project["id"]));
            let key = self.post(&keys, Some(&access_token), &name).await;
            TestUser {
                access_token,
                refresh_token: text(&session["refresh_token"]),
                key_id: text(&key["id"]),
                user_id: text(&session["user"]["id"]),
                key: text(&key["key"]),
            }
        })
    }
}

/// The credentials of a user.
pub struct TestUser {
    pub user_id: String,
    pub access_token: String,
    pub refresh_token: String,
    pub key_id: String,
    pub key: String,
}
