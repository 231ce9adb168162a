use hyper::body::Bytes;

use super::*;

const SECRETS: &[&str] = &["10.0.0.5", "10.0.0.5:8000", "http://10.0.0.5:8000/v1", "gpu-1.Internal", ""];

fn read(body: &str) -> Option<String> {
    message(&Bytes::copy_from_slice(body.as_bytes()), SECRETS)
}

#[test]
fn known_forms_are_read() {
    for (body, expected) in [
        (
            r#"{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}}"#,
            "The model `x` does not exist.",
        ),
        (
            r#"{"object":"error","message":"max_tokens is too large","type":"BadRequestError","param":null,"code":400}"#,
            "max_tokens is too large",
        ),
        (r#"{"error":"Input validation error","error_type":"validation"}"#, "Input validation error"),
        (
            r#"{"error":{"code":400,"message":"the request exceeds the context","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":4}}"#,
            "the request exceeds the context",
        ),
        (r#"{"detail":"Not Found"}"#, "Not Found"),
        (
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","messages",0,"x"],"msg":"Extra inputs are not permitted","input":"secret"},{"msg":"Also this"},{"loc":["body"]}]}"#,
            "body.messages.0.x: Extra inputs are not permitted; Also this",
        ),
    ] {
        assert_eq!(read(body).as_deref(), Some(expected), "{body}");
    }
}

#[test]
fn nothing_else_is_passed_on() {
    for body in [
        "",
        "<html><h1>502 Bad Gateway</h1></html>",
        "Internal Server Error",
        "\"text\"",
        "[]",
        "{}",
        "null",
        r#"{"message":"no route"}"#,
        r#"{"object":"list","message":"no error"}"#,
        r#"{"error":null}"#,
        r#"{"error":{"message":null}}"#,
        r#"{"error":{"message":{"a":"b"}}}"#,
        r#"{"error":{"code":1}}"#,
        r#"{"error":""}"#,
        r#"{"error":" \n\u0007"}"#,
        r#"{"error":true,"detail":"x"}"#,
        r#"{"detail":[]}"#,
        r#"{"detail":{"msg":"x"}}"#,
        r#"{"detail":[1,"x",{"msg":2.5}]}"#,
        r#"{"error":"a","error":"b"}"#,
        "{\"error\":\"cut",
    ] {
        assert_eq!(read(body), None, "{body}");
    }
}

#[test]
fn addresses_are_replaced() {
    for (text, expected) in [
        ("can't connect to http://10.0.0.5:8000/v1/models", "can't connect to upstream/models"),
        ("host 10.0.0.5, 10.0.0.5:8000, HTTP://10.0.0.5:8000/V1", "host upstream, upstream, upstream"),
        ("GPU-1.internal is É", "upstream is É"),
        (r"1\u00000.0.0.5\n10.\u200b0.0.5 http:\/\/10.0.0.5:8000\/v1", "upstream upstream upstream"),
    ] {
        assert_eq!(read(&format!("{{\"error\":\"{text}\"}}")).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn messages_are_short_and_one_line() {
    assert_eq!(read(r#"{"error":"a\r\n\tb\u0007\u001b[31mc\u0085\u202ed"}"#).unwrap(), "a   b[31mcd");
    let long = |chars: usize| read(&format!("{{\"error\":\"{}\"}}", "é".repeat(chars))).unwrap();
    assert_eq!(long(MAX_MESSAGE_CHARS), "é".repeat(MAX_MESSAGE_CHARS));
    assert_eq!(long(MAX_MESSAGE_CHARS + 1), format!("{}…", "é".repeat(MAX_MESSAGE_CHARS - 1)));
    // An address at the length limit is removed, too.
    let border = format!("{{\"error\":\"{}10.0.0.5 and more\"}}", "x".repeat(MAX_MESSAGE_CHARS - 4));
    assert!(!read(&border).unwrap().contains("10."), "{border}");
    let many = r#"{"loc":["a"],"msg":"b"},"#.repeat(50);
    assert_eq!(read(&format!("{{\"detail\":[{many}1]}}")).unwrap(), ["a: b"; 5].join("; "));
}

#[test]
fn models_go_by_the_name_that_the_client_knows() {
    for (message, expected) in [
        ("The model `org/engine` does not exist.", "The model `chat-1` does not exist."),
        ("model org/engine not found", "model chat-1 not found"),
        ("org/engine: no such model org/engine.", "chat-1: no such model chat-1."),
        (
            "no model org/engine-2, my-org/engine, org/engine.5 or org/engines",
            "no model org/engine-2, my-org/engine, org/engine.5 or org/engines",
        ),
        ("max_tokens is too large", "max_tokens is too large"),
        ("", ""),
    ] {
        assert_eq!(rename(message, "org/engine", "chat-1"), expected);
    }
    assert_eq!(rename("a model", "a", "a"), "a model");
    assert_eq!(rename("a model", "", "x"), "a model");
}

#[test]
fn addresses_and_accounts_of_others_are_hidden() {
    for (message, expected) in [
        ("Cannot connect to host 169.254.169.254:80, timeout", "Cannot connect to host upstream, timeout"),
        ("can't fetch 'https://intern.example.com/a?b=1': 403.", "can't fetch 'upstream': 403."),
        ("no route to 10.0.0.9.", "no route to upstream."),
        ("no route to [fd00::1]:80 (or fd00::2)", "no route to upstream (or upstream)"),
        ("Incorrect API key provided: sk-proj-abc123xyz.", "Incorrect API key provided: (hidden)."),
        ("bad api_key=sk-abcdefgh1, sorry", "bad (hidden), sorry"),
        ("no model in organization org-AbCdEfGh12", "no model in organization (hidden)"),
        (
            "version 1.2.3 of sk-learn and org-mode: a::b is no type",
            "version 1.2.3 of sk-learn and org-mode: a::b is no type",
        ),
        ("`max_tokens` must be at least 1, was 0.5", "`max_tokens` must be at least 1, was 0.5"),
    ] {
        let body = serde_json::json!({"error": {"message": message}}).to_string();
        assert_eq!(super::message::<&str>(&Bytes::from(body), &[]).unwrap(), expected);
    }
}
