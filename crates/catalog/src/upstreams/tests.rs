//! Upstreams and routes: defaults, credentials, and the message of every mistake and warning.

use std::env::VarError;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::tests::model;
use crate::{Catalog, CatalogError, Environment};
use kernel::clock::Time;
use kernel::random::Random;
use kernel::secrets::files::CREDENTIAL_RULE;

const NOW: Time = Time::from_unix_ms(1_800_000_000_000);
const ENVIRONMENT: Environment = |name| match name {
    "KEY" => Ok("sk-from-the-environment".to_owned()),
    "EMPTY" => Ok(String::new()),
    "BYTES" => Err(VarError::NotUnicode(OsString::from("sk"))),
    _ => Err(VarError::NotPresent),
};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("tollkeeper-catalog-{:032x}", u128::from_be_bytes(Random::system().bytes()));
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }

    fn write(&self, name: &str, content: &str, mode: u32) {
        let file = self.0.join(name);
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn parse(text: &str) -> Result<Catalog, CatalogError> {
    Catalog::parse_with(text, Path::new("c"), ENVIRONMENT)
}

/// Returns an upstream of kind `vllm` with further keys.
fn upstream(id: &str, keys: &str) -> String {
    format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"http://10.0.0.5:8000/v1\"\n{keys}\n")
}

/// Returns a model with these routes, each given as the keys of an inline table.
fn routed(routes: &[&str]) -> String {
    let routes: Vec<_> = routes.iter().map(|route| format!("{{ {route} }}")).collect();
    model(&format!("routes = [{}]", routes.join(", ")))
}

/// Every key of an upstream that has a default, with a value other than the default.
const EVERY_KEY: &str = r#"max_concurrent = 1
max_waiting = 0
max_wait_ms = 2
connect_ms = 3
first_event_ms = 4
between_events_ms = 5
total_ms = 6
on_disconnect = "drain"
allow_fields = ["top_k", "tools.web_search", "cache_salt"]
deny_fields = ["seed"]
media_urls = "pass"
shared_prefix_cache = true"#;

/// Returns a route without a cost.
fn route(upstream: &Arc<Upstream>, model: &str, weight: u32, tier: u32) -> Route {
    Route { upstream: Arc::clone(upstream), model: model.to_owned(), weight, tier, cost: None }
}

#[test]
fn upstream_has_the_documented_defaults() {
    let text = upstream("a", "credential_env = \"KEY\"")
        + &upstream("b", EVERY_KEY)
        + &routed(&[
            "upstream = \"a\", model = \"meta-llama/Llama 3@1\", weight = 2",
            "upstream = \"b\", tier = 1",
        ])
        + "context_length = 32768\naffinity = \"prefix\"\n";
    let catalog = parse(&text).unwrap();
    let first = Upstream {
        id: "a".to_owned(),
        kind: UpstreamKind::Vllm,
        url: BaseUrl::parse("http://10.0.0.5:8000/v1"),
        credential: Some(Secret::new("sk-from-the-environment")),
        max_concurrent: 64,
        max_waiting: 128,
        max_wait_ms: 10_000,
        connect_ms: 2_000,
        first_event_ms: 60_000,
        between_events_ms: 300_000,
        total_ms: 600_000,
        on_disconnect: OnDisconnect::Count,
        allow_fields: Vec::new(),
        deny_fields: Vec::new(),
        media_urls: MediaUrls::Fetch,
        shared_prefix_cache: false,
    };
    let second = Upstream {
        id: "b".to_owned(),
        credential: None,
        max_concurrent: 1,
        max_waiting: 0,
        max_wait_ms: 2,
        connect_ms: 3,
        first_event_ms: 4,
        between_events_ms: 5,
        total_ms: 6,
        on_disconnect: OnDisconnect::Drain,
        allow_fields: ["top_k", "tools.web_search", "cache_salt"].map(str::to_owned).to_vec(),
        deny_fields: vec!["seed".to_owned()],
        media_urls: MediaUrls::Pass,
        shared_prefix_cache: true,
        ..first.clone()
    };
    let [a, b] = catalog.upstreams() else { panic!("{:?}", catalog.upstreams()) };
    assert_eq!((&**a, &**b), (&first, &second));
    let expected = [route(a, "meta-llama/Llama 3@1", 2, 0), route(b, "m", 1, 1)];
    let model = catalog.get("m").unwrap();
    assert_eq!(model.routes, expected);
    assert_eq!((model.context_length, model.affinity), (Some(32_768), Affinity::Prefix));
    assert!(!format!("{catalog:?}").contains("sk-"), "{catalog:?}");
    assert_eq!((catalog.warnings(NOW), catalog.uses_demo()), (Vec::new(), false));
    let plain = parse(&crate::tests::model("")).unwrap();
    let model = plain.get("m").unwrap();
    assert_eq!((&model.routes[..], model.context_length, model.affinity), (&[][..], None, Affinity::None));
    assert!(plain.upstreams().is_empty() && !plain.uses_demo());
}

#[test]
fn kinds_differ_in_what_they_serve() {
    let cases = [("vllm", true), ("sglang", true), ("llamacpp", true), ("tgi", false), ("openai", true)];
    for (kind, has_embeddings) in cases {
        let upstream = upstream("a", "").replace("vllm", kind);
        let catalog = parse(&format!("{upstream}{}", routed(&["upstream = \"a\""]))).unwrap();
        let found = &catalog.upstreams()[0];
        assert_eq!((found.kind.as_str(), found.on_disconnect), (kind, OnDisconnect::Count));
        let serves = (found.kind.serves(Kind::Chat), found.kind.serves(Kind::Embeddings));
        assert_eq!(serves, (true, has_embeddings), "{kind}");
    }
}

#[test]
fn built_in_models_are_served_by_the_demo() {
    let catalog = Catalog::built_in().unwrap();
    let [demo] = catalog.upstreams() else { panic!("{:?}", catalog.upstreams()) };
    assert_eq!((demo.id.as_str(), demo.kind, &demo.url), ("demo", UpstreamKind::Demo, &None));
    for model in catalog.all_models() {
        assert_eq!(model.routes, [route(demo, &model.id, 1, 0)]);
        assert_eq!(catalog.get(&model.id), Some(model));
    }
    assert!(catalog.uses_demo() && catalog.with_book(catalog.book().clone()).uses_demo());
    assert_eq!(catalog.warnings(NOW), Vec::<String>::new());
    // A copy of the file has only the upstreams that it names.
    let copy = parse(crate::BUILT_IN).unwrap();
    assert!(!copy.uses_demo() && copy.upstreams().is_empty());
    assert_eq!(copy.canonical(), catalog.canonical());
    let named = parse(&format!("{DEMO}{}", routed(&["upstream = \"demo\""]))).unwrap();
    assert!(named.uses_demo());
    let retired = parse(&format!("{DEMO}{}retired = true\n", routed(&["upstream = \"demo\""]))).unwrap();
    assert!(!retired.uses_demo());
}

#[test]
fn mistakes_name_line_upstream_key_and_the_expected_value() {
    let one = |keys: &str| upstream("a", keys) + &routed(&["upstream = \"a\""]);
    let url = |url: &str| one("").replace("http://10.0.0.5:8000/v1", url);
    let wrong_url = "c:4: upstream `a`: `url`: expected a URL such as \"http://10.0.0.5:8000/v1\", without login, \
                     query or fragment";
    let wrong_variable = "c:5: upstream `a`: `credential_env`: expected the name of an environment variable, 1 to \
                          100 uppercase letters, digits and `_`, that doesn't begin with `TOLLKEEPER_`";
    let whole = |key: &str, min: u32, max: u32, found: u32| {
        let mistake =
            format!("c:5: upstream `a`: `{key}`: expected a whole number from {min} to {max}, found {found}");
        (one(&format!("{key} = {found}")), mistake)
    };
    for (text, expected) in [
        whole("max_concurrent", 1, 100_000, 0),
        whole("max_waiting", 0, 100_000, 100_001),
        whole("max_wait_ms", 1, 600_000, 0),
        whole("connect_ms", 1, 60_000, 60_001),
        whole("first_event_ms", 1, 3_600_000, 0),
        whole("between_events_ms", 1, 3_600_000, 3_600_001),
        whole("total_ms", 1, 86_400_000, 86_400_001),
    ] {
        assert_eq!(parse(&text).unwrap_err().problems, [expected], "{text}");
    }
    let kinds = UpstreamKind::ALL.map(|kind| format!("`{}`", kind.as_str())).join(", ");
    let wrong_kind = format!("c:3: upstream `a`: `kind`: expected one of {kinds}, found \"ollama\"");
    let cases = [
        (url("https://user:sk-word@h/v1"), wrong_url),
        (url("https://h/v1?key=sk-word"), wrong_url),
        (url("10.0.0.5:8000"), wrong_url),
        (one("credential_env = \"sk-word\""), wrong_variable),
        (one("credential_env = \"TOLLKEEPER_MASTER_KEY\""), wrong_variable),
        (one("credential_env = [\"sk-word\"]"), wrong_variable),
        (
            one("credential_file = 3"),
            "c:5: upstream `a`: `credential_file`: expected a path that is not empty",
        ),
        (
            one("credential = \"sk-word\""),
            "c:5: upstream `a`: unknown key `credential` (did you mean `credential_env`?)",
        ),
        (
            one("on_disconnect = \"sigh\""),
            "c:5: upstream `a`: `on_disconnect`: expected one of `count`, `cancel`, `drain`, found \"sigh\"",
        ),
        (one("").replace("vllm", "ollama"), &wrong_kind),
        (one("").replace("kind = \"vllm\"\n", ""), "c:1: upstream `a`: the key `kind` is missing"),
        (one("").replacen("id = \"a\"\n", "", 1), "c:1: upstream without `id`: the key `id` is missing"),
        (
            "upstreams = [1]".to_owned(),
            "c:1: `upstreams`: expected tables: write `[[upstreams]]` and their keys below",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(&text).unwrap_err().problems, [expected], "{text}");
    }
}

#[test]
fn mistakes_in_lists_of_fields_name_the_field() {
    let one = |keys: &str| upstream("a", keys) + &routed(&["upstream = \"a\""]);
    let name = "c:5: upstream `a`: `deny_fields`: expected the name of a field, 1 to 64 lowercase letters, digits and `_`, or \
                several with `.` between";
    let listed = |key: &str, why: &str| format!("c:5: upstream `a`: `{key}`: {why}");
    let many = (0..101).map(|at| format!("\"f{at}\"")).collect::<Vec<_>>().join(", ");
    for (keys, expected) in [
        ("deny_fields = [\"Top_K\"]".to_owned(), format!("{name}, found \"Top_K\"")),
        ("deny_fields = [\"\"]".to_owned(), format!("{name}, found \"\"")),
        ("deny_fields = [\"tools.\"]".to_owned(), format!("{name}, found \"tools.\"")),
        (
            "allow_fields = [\"max_tokens\"]".to_owned(),
            listed("allow_fields", "`max_tokens` can't be in it: the gateway reads it itself"),
        ),
        (
            "deny_fields = [\"model\"]".to_owned(),
            listed("deny_fields", "`model` can't be in it: the gateway reads it itself"),
        ),
        (
            "allow_fields = [\"top_k\", \"top_k\"]".to_owned(),
            listed("allow_fields", "`top_k` can't be in it: it is listed twice"),
        ),
        (
            "allow_fields = [\"cache_salt\"]".to_owned(),
            listed(
                "allow_fields",
                "`cache_salt` can't be in it: the gateway writes it, unless `shared_prefix_cache` is true",
            ),
        ),
        (format!("deny_fields = [{many}]"), listed("deny_fields", "it has more than 100 names")),
    ] {
        assert_eq!(parse(&one(&keys)).unwrap_err().problems, [expected], "{keys}");
    }
    let problems = parse(&one("media_urls = \"load\"")).unwrap_err().problems;
    assert!(problems[0].contains("`media_urls`: expected"), "{problems:?}");
}

#[test]
fn mistakes_in_routes_name_line_model_key_and_the_expected_value() {
    let cases = [
        ("routes = [{ model = \"x\" }]", "c:11: model `m`: the key `upstream` is missing"),
        (
            "routes = [{ upstream = \"a\", weight = 0 }]",
            "c:11: model `m`: `weight`: expected a whole number from 1 to 1000, found 0",
        ),
        (
            "routes = [{ upstream = \"a\", tier = -1 }]",
            "c:11: model `m`: `tier`: expected a whole number from 0 to 1000, found -1",
        ),
        (
            "routes = [{ upstream = \"a\", model = \"\" }]",
            "c:11: model `m`: `model`: expected a string of 1 to 256 characters on one line, found \"\"",
        ),
        (
            "routes = [\"a\"]",
            "c:11: model `m`: `routes`: expected tables: write `[[models.routes]]` and their keys below",
        ),
        (
            "affinity = \"session\"",
            "c:11: model `m`: `affinity`: expected `none` or `prefix`, found \"session\"",
        ),
        (
            "context_length = 0",
            "c:11: model `m`: `context_length`: expected a whole number from 1 to 1000000000, found 0",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(&model(text)).unwrap_err().problems, [expected], "{text}");
    }
}

#[test]
fn all_breaches_of_rules_are_reported_at_once() {
    let embeddings = "kind = \"embeddings\"\ndimension = 3\nprices = []\nid = \"e\"\n";
    let routes = "routes = [\n  { upstream = \"a\" },\n  { upstream = \"t\" },\n  { upstream = \"other\" },\n  \
                  { upstream = \"a\", model = \"x\" },\n  { upstream = \"a\", model = \"e\", tier = 1 },\n]\n";
    let text = upstream("a", "")
        + "[[upstreams]]\nid = \"t\"\nkind = \"tgi\"\n"
        + &upstream("a", "")
        + "[[upstreams]]\nid = \"d\"\nkind = \"demo\"\nurl = \"http://h\"\ncredential_env = \"KEY\"\n"
        + &upstream("f", "credential_file = \"f.key\"\ncredential_env = \"KEY\"")
        + &model(embeddings.trim_end())
        + routes;
    let expected = [
        "c:6: upstream `t`: the key `url` is missing",
        "c:9: upstream `a`: `id`: two upstreams have this id",
        "c:17: upstream `d`: `url`: upstreams of kind `demo` don't have it: remove the key",
        "c:18: upstream `d`: `credential_env`: upstreams of kind `demo` don't have it: remove the key",
        "c:24: upstream `f`: `credential_env`: `credential_file` is set, too: set only one of them",
        "c:38: model `e`: `routes`: upstream `t` is of kind tgi, which doesn't serve embeddings",
        "c:39: model `e`: `routes`: unknown upstream `other`: the upstreams are `a`, `t`, `d`, `f`",
        "c:41: model `e`: `routes`: two routes have the model `e` of upstream `a`",
    ];
    assert_eq!(parse(&text).unwrap_err().problems, expected);
    let error = parse(&routed(&["upstream = \"a\""])).unwrap_err().to_string();
    let expected = "c:11: model `m`: `routes`: unknown upstream `a`: the file has no table `[[upstreams]]`";
    assert_eq!(error, expected);
    let error =
        parse(&(upstream("vllm-a", "") + &routed(&["upstream = \"vllm_a\""]))).unwrap_err().to_string();
    assert!(
        error.ends_with("unknown upstream `vllm_a` (did you mean `vllm-a`?): the upstreams are `vllm-a`"),
        "{error}"
    );
    // A retired model may keep its routes.
    parse(&format!("{}{}retired = true\n", upstream("a", ""), routed(&["upstream = \"a\""]))).unwrap();
}

#[test]
fn credentials_are_read_beside_the_file_and_never_quoted() {
    let folder = Folder::new();
    let file = folder.0.join("c.toml");
    let (name, here) = (file.display(), folder.0.display());
    let load = |key: &str| {
        let text = upstream("a", key) + &routed(&["upstream = \"a\""]);
        Catalog::parse_with(&text, &file, ENVIRONMENT)
    };
    folder.write("a.key", "sk-word\n", 0o600);
    let absolute = format!("credential_file = \"{here}/a.key\"");
    for key in ["credential_file = \"a.key\"", &absolute] {
        let catalog = load(key).unwrap();
        assert_eq!(catalog.upstreams()[0].credential, Some(Secret::new("sk-word")));
        assert_eq!(catalog.warnings(NOW), Vec::<String>::new());
    }
    folder.write("a.key", "sk-word", 0o644);
    let catalog = load("credential_file = \"a.key\"").unwrap();
    let warning = format!(
        "{name}:5: upstream `a`: `credential_file`: the file {here}/a.key is open to other users (mode 644): \
         `chmod 600` it"
    );
    for catalog in [catalog.with_book(catalog.book().clone()), catalog] {
        assert_eq!(catalog.warnings(NOW), [warning.as_str()]);
    }

    folder.write("empty", "", 0o600);
    folder.write("two", "sk-one\nsk-two\n", 0o600);
    folder.write("long", &"s".repeat(8_193), 0o600);
    let cases = [
        (
            "credential_file = \"missing\"",
            format!("the file {here}/missing can't be read: No such file or directory (os error 2)"),
        ),
        ("credential_file = \"empty\"", format!("the file {here}/empty must contain {CREDENTIAL_RULE}")),
        ("credential_file = \"two\"", format!("the file {here}/two must contain {CREDENTIAL_RULE}")),
        ("credential_file = \"long\"", format!("the file {here}/long must contain {CREDENTIAL_RULE}")),
        ("credential_env = \"NONE\"", "the environment variable NONE isn't set".to_owned()),
        (
            "credential_env = \"EMPTY\"",
            format!("the environment variable EMPTY must contain {CREDENTIAL_RULE}"),
        ),
        (
            "credential_env = \"BYTES\"",
            format!("the environment variable BYTES must contain {CREDENTIAL_RULE}"),
        ),
    ];
    for (key, why) in cases {
        let word = key.split(' ').next().unwrap();
        let expected = format!("{name}:5: upstream `a`: `{word}`: {why}");
        assert_eq!(load(key).unwrap_err().problems, [expected]);
    }
}

#[test]
fn warnings_name_unused_upstreams_and_credentials_in_the_clear() {
    let key = "credential_env = \"KEY\"";
    let at = |id: &str, url: &str, keys: &str| upstream(id, keys).replace("http://10.0.0.5:8000/v1", url);
    let text = at("private", "http://10.0.0.5/v1", key)
        + &at("safe", "https://api.example.com/v1", key)
        + &at("bare", "http://api.example.com/v1", "")
        + &at("clear", "http://api.example.com/v1", key)
        + &upstream("unused", "")
        + &routed(
            &["private", "safe", "bare", "clear"]
                .map(|id| format!("upstream = \"{id}\""))
                .each_ref()
                .map(String::as_str),
        );
    let expected = [
        "c:16: upstream `clear`: `url`: the credential is sent in the clear over a public network: use https",
        "c:21: upstream `unused`: no model has a route to it",
    ];
    assert_eq!(parse(&text).unwrap().warnings(NOW), expected);
}

#[test]
fn routes_and_upstreams_are_differences_without_a_fingerprint() {
    let with = |keys: &str, route: &str| {
        parse(&(upstream("a", keys) + &upstream("b", "") + &routed(&[route]) + &model("id = \"n\""))).unwrap()
    };
    let old = with("", "upstream = \"a\"");
    let difference = |new: &Catalog| {
        assert_eq!(new.canonical(), old.canonical());
        let difference = new.changes_from(&old);
        (difference.changed.join(" "), difference.upstreams.join(" "), difference.is_empty())
    };
    let said =
        |changed: &str, upstreams: &str, is_empty| (changed.to_owned(), upstreams.to_owned(), is_empty);
    assert_eq!(difference(&with("", "upstream = \"a\"")), said("", "", true));
    assert_eq!(difference(&with("", "upstream = \"b\"")), said("m", "", false));
    assert_eq!(difference(&with("", "upstream = \"a\", weight = 2")), said("m", "", false));
    assert_eq!(difference(&with("credential_env = \"KEY\"", "upstream = \"a\"")), said("m", "a", false));
    let none = parse(&(model("") + &model("id = \"n\""))).unwrap();
    assert_eq!(difference(&none), said("m", "a b", false));
    let changed =
        none.changes_from(&parse(&(upstream("a", "") + &model("") + &model("id = \"n\""))).unwrap());
    assert_eq!((changed.changed.len(), changed.upstreams), (0, vec!["a".to_owned()]));
    // Like other limits, the context length applies to the whole installation.
    assert_ne!(
        parse(&model("context_length = 9")).unwrap().canonical(),
        parse(&model("")).unwrap().canonical()
    );
}
