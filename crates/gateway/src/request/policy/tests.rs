//! The fields that are forwarded to each kind of upstream, and requests of popular programs, which must pass.

use UpstreamKind::{Openai, Vllm};
use hyper::body::Bytes;
use kernel::error::Code;

use super::*;
use crate::operation::Operation;
use crate::request::field_lists::listed;
use crate::request::tools::without_searches;
use catalog::{OnDisconnect, UpstreamKind};

/// Returns the kinds of the operator's own servers.
fn own() -> impl Iterator<Item = UpstreamKind> {
    UpstreamKind::ALL.into_iter().filter(|kind| *kind != Openai)
}

fn upstream(kind: UpstreamKind) -> Upstream {
    Upstream {
        id: "a".to_owned(),
        kind,
        url: None,
        credential: None,
        max_concurrent: 1,
        max_waiting: 0,
        max_wait_ms: 1,
        connect_ms: 1,
        first_event_ms: 1,
        between_events_ms: 1,
        total_ms: 1,
        on_disconnect: OnDisconnect::Cancel,
        allow_fields: Vec::new(),
        deny_fields: Vec::new(),
        media_urls: MediaUrls::default(),
        shared_prefix_cache: false,
    }
}

/// Reads a request with these members. Other members that the operation needs are added.
fn request(operation: Operation, members: &str) -> ModelRequest {
    let contents = format!("\"{}\":", operation.contents());
    let text = match operation {
        _ if members.contains(&contents) => String::new(),
        Operation::ChatCompletions | Operation::Messages => {
            format!(r#",{contents}[{{"role":"user","content":"Hi"}}]"#)
        }
        _ => format!(r#",{contents}"Hi""#),
    };
    let comma = if members.is_empty() { "" } else { "," };
    let body = format!(r#"{{"model":"m"{text}{comma}{members}}}"#);
    ModelRequest::read(operation, &Bytes::from(body.clone()))
        .unwrap_or_else(|error| panic!("{body}: {error:?}"))
}

/// Returns the name that is refused for a kind of upstream; `None` if the whole request is forwarded.
fn refused_by(kind: UpstreamKind, operation: Operation, members: &str) -> Option<String> {
    let error = request(operation, members).check_fields(&upstream(kind)).err()?;
    assert_eq!(error.code, Code::UnsupportedParameter, "{members}");
    Some(error.param.unwrap().into_owned())
}

use Operation::{ChatCompletions, Completions, Embeddings, Messages, Responses};

#[test]
fn every_listed_name_is_small_ascii() {
    for name in listed() {
        assert!(
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit()),
            "{name}"
        );
    }
}

/// The tools of a chat.
const FUNCTION: &str = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
        "properties":{"Type":{"type":"string"},"URL":{},"model":{}}}}}]"#;
/// The tools that Codex offers, except its search.
const CODEX_TOOLS: &str = r#""tools":[{"type":"function","name":"shell","strict":false,"parameters":{}},
        {"type":"custom","name":"apply_patch","format":{"type":"grammar","syntax":"lark","definition":"x"}},
        {"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","parameters":{}}]},
        {"type":"local_shell"},{"type":"tool_search","execution":"client","description":"d","parameters":{}}]"#;
const CODEX: &str = r#""instructions":"i","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
        {"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"gAAA"},
        {"type":"function_call","id":"fc_1","name":"shell","arguments":"{}","call_id":"c"},
        {"type":"function_call_output","call_id":"c","output":"done"},
        {"type":"custom_tool_call","status":"completed","call_id":"d","name":"apply_patch","input":"*** Begin"},
        {"type":"custom_tool_call_output","call_id":"d","output":"ok"},
        {"type":"local_shell_call","call_id":"e","status":"completed","action":{"type":"exec","command":["ls"],"env":{"Type":"1"}}},
        {"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}],
        CODEX_TOOLS,"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"auto"},
        "store":false,"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k",
        "text":{"verbosity":"low"},"client_metadata":{"x-codex-installation-id":"i"},"service_tier":null"#;
const CLAUDE_CODE: &str = r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"max_tokens":32000,
        "messages":[{"role":"user","content":[{"type":"text","text":"hi"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"EqQB:x"},
            {"type":"redacted_thinking","data":"EmwK"},
            {"type":"tool_use","id":"toolu_1","name":"Read","input":{"File":"x","URL":"file:///x","Type":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"r"}]}]}],
        "tools":[{"name":"Read","description":"d","input_schema":{"type":"object","properties":{"Name":{}}}}],
        "metadata":{"user_id":"u"},"stream":true,"temperature":1,"thinking":{"type":"enabled","budget_tokens":1024},
        "context_management":{"edits":[]},"output_config":{"effort":"high"}"#;
const ANTHROPIC_TOOLS: &str = r#""max_tokens":5,"tools":[{"type":"bash_20250124","name":"bash"},{"type":"custom","name":"c"},
        {"type":"text_editor_20250728","name":"e"},{"type":"computer_20250124","name":"x","display_width_px":1},
        {"type":"memory_20250818","name":"memory"}],"tool_choice":{"type":"auto"},"stop_sequences":["x"],"top_k":5,"top_p":0.9"#;
const OPENCODE: &str = r#""max_tokens":32000,"temperature":0,"top_p":1,"stream":true,
        "stream_options":{"include_usage":true},"tool_choice":"auto",FUNCTION"#;
const OPENAI_CHAT: &str = r#""max_completion_tokens":5,"n":1,"stop":["x"],"seed":1,"temperature":1,"top_p":1,
        "presence_penalty":0,"frequency_penalty":0,"logit_bias":{"1":2},"logprobs":true,"top_logprobs":2,
        "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"Type":1}}},"reasoning_effort":"low",
        "verbosity":"low","parallel_tool_calls":true,"tool_choice":"auto","user":"u","safety_identifier":"s",
        "prompt_cache_key":"k","metadata":{"a":"b"},"store":false,"service_tier":"auto","modalities":["text"],FUNCTION"#;
const LANGCHAIN: &str = r#""temperature":0.7,"n":1,"stream":false,"stop":null,"service_tier":"default","functions":[{"name":"f"}],
        "function_call":"auto","response_format":{"type":"json_object"}"#;
const PI: &str =
    r#""max_completion_tokens":9,"store":false,"stream":true,"stream_options":{"include_usage":true}"#;
const VERCEL_RESPONSES: &str = r#""input":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"input_text","text":"hi"},
        {"type":"input_image","image_url":"data:image/png;base64,iVBO"}]},
        {"role":"assistant","content":[{"type":"output_text","text":"a"}],"id":"msg_1"},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{}","id":"fc_1"},
        {"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"r"}]}],
        "temperature":1,"top_p":1,"max_output_tokens":9,"max_tool_calls":3,"metadata":{},"parallel_tool_calls":true,"user":"u",
        "instructions":"i","truncation":"auto","top_logprobs":2,"include":["message.output_text.logprobs"],
        "text":{"format":{"type":"json_schema","name":"n","schema":{}}},"reasoning":{"effort":"low"},
        "prompt_cache_retention":"24h","tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":"auto""#;
const QWEN_CODE: &str = r#""max_tokens":32000,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"top_p":1,
        "enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false},"metadata":{"sessionId":"s"}"#;
const LEGACY: &str = r#""prompt":["a"],"max_tokens":5,"n":2,"best_of":2,"echo":true,"suffix":"s","logprobs":3,"stop":"x","user":"u""#;
const VECTORS: &str = r#""input":["a"],"encoding_format":"base64","dimensions":8,"user":"u""#;

/// Requests of real programs, each with its operation.
const CLIENTS: &[(&str, Operation, &str)] = &[
    ("Codex", Responses, CODEX),
    ("Claude Code", Messages, CLAUDE_CODE),
    ("Anthropic's SDK", Messages, ANTHROPIC_TOOLS),
    ("OpenCode, Continue, Crush", ChatCompletions, OPENCODE),
    ("OpenAI's SDK, Vercel's AI SDK", ChatCompletions, OPENAI_CHAT),
    ("LangChain", ChatCompletions, LANGCHAIN),
    ("pi", ChatCompletions, PI),
    ("Qwen Code", ChatCompletions, QWEN_CODE),
    ("Vercel's AI SDK", Responses, VERCEL_RESPONSES),
    ("OpenAI's SDK", Completions, LEGACY),
    ("LangChain", Embeddings, VECTORS),
];

#[test]
fn real_clients_send_nothing_that_is_refused() {
    for (client, operation, members) in CLIENTS {
        let members = members.replace("CODEX_TOOLS", CODEX_TOOLS).replace("FUNCTION", FUNCTION);
        for kind in UpstreamKind::ALL {
            assert_eq!(refused_by(kind, *operation, &members), None, "{client} at {kind:?}");
        }
    }
}

#[test]
fn searches_that_codex_offers_stay_away_from_ones_own_servers() {
    let offered = r#""tools":[{"type":"web_search","external_web_access":false},{"type":"function","name":"f"}, {"type":"web_search_preview_2025_03_11"}]"#;
    for kind in own() {
        let upstream = upstream(kind);
        for (choice, is_dropped) in [
            ("", true),
            (r#","tool_choice":"auto""#, true),
            (r#","tool_choice":"none""#, true),
            (r#","tool_choice":null"#, true),
            (r#","tool_choice":"required""#, false),
            (r#","tool_choice":{"type":"web_search"}"#, false),
        ] {
            let request = request(Responses, &format!("{offered}{choice}"));
            assert_eq!(request.check_fields(&upstream).is_ok(), is_dropped, "{choice}");
            assert_eq!(request.drops_searches(&upstream), is_dropped, "{choice}");
        }
        let mut allowing = upstream.clone();
        allowing.allow_fields = vec!["tools.web_search".to_owned()];
        let request = request(Responses, offered);
        assert!(request.check_fields(&allowing).is_ok() && !request.drops_searches(&allowing));
        let mut denying = upstream;
        denying.deny_fields = vec!["tools.web_search".to_owned()];
        assert!(request.check_fields(&denying).is_err() && !request.drops_searches(&denying));
    }
    assert_eq!(refused_by(Openai, Responses, offered).as_deref(), Some("tools.web_search"));
    assert!(!request(Responses, offered).drops_searches(&upstream(Openai)));
    let rest =
        without_searches(br#"[ {"type":"web_search"} , {"type":"function","name":"f"}, {"name":"g"}]"#);
    assert_eq!(rest.unwrap(), br#"[{"type":"function","name":"f"},{"name":"g"}]"#);
    assert_eq!(without_searches(br#"[{"type":"web_search"}]"#).unwrap(), b"[]");
    assert!(without_searches(br#"{"type":"web_search"}"#).is_none());
}

#[test]
fn fields_that_reach_past_a_call_are_refused() {
    let by_own: &[(Operation, &str, &str)] = &[
        (ChatCompletions, r#""priority":-100"#, "priority"),
        (Responses, r#""priority":0"#, "priority"),
        (ChatCompletions, r#""request_id":"r""#, "request_id"),
        (Completions, r#""rid":"r""#, "rid"),
        (ChatCompletions, r#""kv_transfer_params":{"remote_host":"h"}"#, "kv_transfer_params"),
        (ChatCompletions, r#""bootstrap_host":"169.254.169.254""#, "bootstrap_host"),
        (Completions, r#""lora_path":"/etc""#, "lora_path"),
        (ChatCompletions, r#""chat_template":"{{ x }}""#, "chat_template"),
        (ChatCompletions, r#""id_slot":1"#, "id_slot"),
        (ChatCompletions, r#""cache_prompt":true"#, "cache_prompt"),
        (ChatCompletions, r#""cache_salt":"s""#, "cache_salt"),
        (ChatCompletions, r#""use_beam_search":true"#, "use_beam_search"),
        (ChatCompletions, r#""\u0070riority":1"#, "priority"),
        (ChatCompletions, r#""priority":null,"priority":1"#, "priority"),
        (Messages, r#""mcp_servers":[{"url":"https://x"}]"#, "mcp_servers"),
    ];
    for (operation, members, name) in by_own {
        for kind in own() {
            assert_eq!(
                refused_by(kind, *operation, members).as_deref(),
                Some(*name),
                "{members} at {kind:?}"
            );
        }
        assert!(refused_by(Openai, *operation, members).is_some(), "{members}");
        let null = format!("\"{name}\":null");
        assert_eq!(refused_by(Vllm, *operation, &null), None, "{null}");
    }
    let by_provider: &[(Operation, &str, &str)] = &[
        (ChatCompletions, r#""service_tier":"priority""#, "service_tier"),
        (ChatCompletions, r#""service_tier":"auto","service_tier":"flex""#, "service_tier"),
        (Responses, r#""store":true"#, "store"),
        (ChatCompletions, r#""modalities":["text","audio"]"#, "modalities"),
        (ChatCompletions, r#""audio":{"voice":"v"}"#, "audio"),
        (ChatCompletions, r#""web_search_options":{}"#, "web_search_options"),
        (ChatCompletions, r#""prediction":{}"#, "prediction"),
        (ChatCompletions, r#""models":["a","b"]"#, "models"),
        (Responses, r#""include":["web_search_call.action.sources"]"#, "include"),
        (Responses, r#""include":"all""#, "include"),
        (Messages, r#""speed":"fast""#, "speed"),
        (Messages, r#""inference_geo":"us""#, "inference_geo"),
        (Embeddings, r#""temperature":1"#, "temperature"),
        (Completions, r#""tools":[]"#, "tools"),
        (ChatCompletions, r#""tools":[{"type":"unheard_of"}]"#, "tools.unheard_of"),
        (ChatCompletions, r#""tools":[{"type":7}]"#, "tools."),
    ];
    for (operation, members, name) in by_provider {
        assert_eq!(refused_by(Openai, *operation, members).as_deref(), Some(*name), "{members}");
        assert_eq!(refused_by(Vllm, *operation, members), None, "{members}");
    }
}

/// Requests, each with the name that is refused.
const ELSEWHERE: &[(Operation, &str, &str)] = &[
    (Responses, r#""tools":[{"type":"mcp","server_url":"http://10.0.0.1"}]"#, "tools.mcp"),
    (
        Responses,
        r#""tools":[{"type":"function"},{"type":"code_interpreter","container":{"type":"auto"}}]"#,
        "tools.code_interpreter",
    ),
    (Responses, r#""tools":[{"type":"image_generation"}]"#, "tools.image_generation"),
    (Responses, r#""tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]"#, "tools.file_search"),
    (Responses, r#""tools":[{"type":"computer_use_preview"}]"#, "tools.computer_use"),
    (Responses, r#""tools":[{"type":"function","type":"MCP"}]"#, "tools.mcp"),
    (Responses, r#""tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]"#, "tools.mcp"),
    (Responses, r#""tools":[{"type":"namespace","tools":[{"type":"web_search"}]}]"#, "tools.web_search"),
    (Responses, r#""tools":[{"type":"shell","environment":{"type":"container_auto"}}]"#, "tools.environment"),
    (Responses, r#""tools":[{"type":"custom","container":"cntr_1"}]"#, "tools.container"),
    (ChatCompletions, r#""tools":[{"type":"web_search"}]"#, "tools.web_search"),
    (ChatCompletions, r#""messages":[{"role":"system","tools":[{"type":"mcp"}]}]"#, "tools.mcp"),
    (Messages, r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#, "tools.web_search"),
    (Messages, r#""tools":[{"type":"code_execution_20250825"}]"#, "tools.code_execution"),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]"#,
        "messages.file_id",
    ),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":null,"uuid":"u"}]}]"#,
        "messages.uuid",
    ),
    (ChatCompletions, r#""messages":[{"role":"assistant","audio":{"id":"audio_1"}}]"#, "messages.audio"),
    (
        Responses,
        r#""input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]"#,
        "input.file_id",
    ),
    (
        Responses,
        r#""input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"f"}}]"#,
        "input.file_id",
    ),
    (Responses, r#""input":[{"type":"image_generation_call","id":"ig_1"}]"#, "input.image_generation_call"),
    (Responses, r#""input":[{"type":"reasoning","id":"rs_1","summary":[]}]"#, "input.reasoning"),
    (
        Responses,
        r#""input":[{"type":"reasoning","id":"rs_1","encrypted_content":"","content":[]}]"#,
        "input.reasoning",
    ),
    (
        Responses,
        r#""input":[{"type":"code_interpreter_call","id":"c","container_id":"cntr_1"}]"#,
        "input.container_id",
    ),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]"#,
        "messages.file_id",
    ),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]"#,
        "messages.file_id",
    ),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"file_id":"f"}}]}]}]"#,
        "messages.file_id",
    ),
];

#[test]
fn tools_that_run_elsewhere_and_references_are_refused_everywhere() {
    for (operation, members, name) in ELSEWHERE {
        for kind in [Vllm, Openai] {
            assert_eq!(
                refused_by(kind, *operation, members).as_deref(),
                Some(*name),
                "{members} at {kind:?}"
            );
        }
        let mut allowing = upstream(Openai);
        allowing.allow_fields = ["tools", "tools.vector_store_ids", name].map(str::to_owned).to_vec();
        let request = request(*operation, members);
        assert!(request.check_fields(&allowing).is_ok(), "{members}");
        // The upstream may add enough to the prompt to fill the context.
        let reserved = |upstreams: &[&Upstream]| {
            request.reserved_prompt_tokens(Some(200_000), upstreams.iter().copied())
        };
        assert_eq!(reserved(&[&upstream(Vllm), &allowing]), 200_000, "{members}");
        assert!(reserved(&[&upstream(Vllm)]) < 200_000 || members.contains("file"), "{members}");
    }
    for members in [
        r#""input":[{"type":"reasoning","id":"rs_1","content":[{"type":"reasoning_text","text":"t"}]}]"#,
        r#""input":[{"type":"reasoning","summary":[]}]"#,
        r#""input":[{"type":"image_generation_call","id":"ig_1","result":"iVBO"}]"#,
        r#""tools":[{"type":"shell","environment":{"type":"local"}},{"type":"shell"}]"#,
    ] {
        assert_eq!(refused_by(Openai, Responses, members), None, "{members}");
    }
}

#[test]
fn lists_of_an_upstream_come_first_and_denials_before_all() {
    let mut upstream = upstream(Openai);
    upstream.allow_fields = ["keep_alive", "service_tier", "temperature"].map(str::to_owned).to_vec();
    upstream.deny_fields = ["temperature", "logit_bias", "num_ctx"].map(str::to_owned).to_vec();
    let check = |members: &str| request(ChatCompletions, members).check_fields(&upstream).is_ok();
    assert!(check(r#""keep_alive":5,"service_tier":"priority""#));
    // An entry with another spelling doesn't allow a field.
    assert!(!check(r#""Keep_Alive":5"#));
    for denied in [r#""temperature":1"#, r#""logit_bias":{}"#, r#""num_ctx":1"#, r#""NUM_CTX":1"#] {
        assert!(!check(denied), "{denied}");
    }
    upstream.kind = Vllm;
    let check = |members: &str| request(ChatCompletions, members).check_fields(&upstream).is_ok();
    assert!(
        !check(r#""temperature":1"#) && !check(r#""Num_Ctx":1"#) && check(r#""priority":null,"top_k":1"#)
    );
}

/// Requests with a URL in every possible position, each written as `"U"`.
const PLACES: &[(Operation, &str)] = &[
    (ChatCompletions, r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":"U"}]}]"#),
    (ChatCompletions, r#""messages":[{"role":"user","content":[{"image_url":["U"]}]}]"#),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"U"}}]}]"#,
    ),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":[{"type":"audio_url","audio_url":{"url":"U"}}]}]"#,
    ),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"U"}}]}]"#,
    ),
    (ChatCompletions, r#""messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"U"}}]}]"#),
    (
        ChatCompletions,
        r#""messages":[{"role":"user","content":{"type":"image_url","image_url":{"url":"U"}}}]"#,
    ),
    (Responses, r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"U"}]}]"#),
    (Responses, r#""input":[{"role":"user","content":[{"type":"input_file","file_url":"U"}]}]"#),
    (
        Responses,
        r#""input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"U"}]}]"#,
    ),
    (Responses, r#""input":[{"type":"computer_call_output","output":{"image_url":"U"}}]"#),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"U"}}]}]"#,
    ),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"U"}}]}]}]"#,
    ),
    (
        Messages,
        r#""messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"U"}}]}}]}]"#,
    ),
    (Messages, r#""system":[{"type":"image","source":{"url":"U"}}]"#),
    (Embeddings, r#""input":[{"image":"U"}]"#),
    (Embeddings, r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"U"}}]}]"#),
];

#[test]
fn addresses_of_media_are_taken_as_the_upstream_says() {
    let part = |url: &str| {
        let url = serde_json::json!(url);
        format!(
            r#""messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":{url}}}}}]}}]"#
        )
    };
    let check = |url: &str, media_urls: MediaUrls| {
        let upstream = Upstream { media_urls, ..upstream(Vllm) };
        request(ChatCompletions, &part(url)).check_fields(&upstream).is_ok()
    };
    use MediaUrls::{Fetch, Pass, Refuse};
    for (url, fetched, refused, passed) in [
        ("data:image/png;base64,iVBO", true, true, true),
        ("DATA:image/png;base64,iVBO", true, true, true),
        ("https://example.com/a.png", true, false, true),
        ("HTTP://example.com/a.png", true, false, true),
        ("s3://bucket/a.png", false, false, true),
        ("file:///etc/passwd", false, false, false),
        ("FILE:///etc/passwd", false, false, false),
        ("/etc/passwd.png", false, false, false),
        ("passwd.png", false, false, false),
        (" https://example.com/", false, false, false),
        ("", true, true, true),
    ] {
        assert_eq!([Fetch, Refuse, Pass].map(|mode| check(url, mode)), [fetched, refused, passed], "{url}");
    }
    for (operation, members) in PLACES {
        for url in ["https://example.com/a", "http:\\/\\/example.com\\/a", "\\u0068ttps://example.com/a"] {
            let members = members.replace("\"U\"", &format!("\"{url}\""));
            let refusing = Upstream { media_urls: Refuse, ..upstream(Vllm) };
            assert!(request(*operation, &members).check_fields(&refusing).is_err(), "{members}");
        }
    }
    // URLs within text aren't loaded.
    let texts = r#""messages":[{"role":"user","content":[{"type":"text","text":"https://example.com"},
        {"type":"search_result","source":"https://example.com","title":"t","content":[]}]}]"#;
    let refusing = Upstream { media_urls: Refuse, ..upstream(Vllm) };
    assert!(request(Messages, texts).check_fields(&refusing).is_ok());
}

#[test]
fn names_that_other_readers_would_take_are_refused() {
    let refused = |operation: Operation, members: &str| {
        let contents = if operation == Responses {
            r#""input":"a""#
        } else {
            r#""messages":[{"role":"user","content":"a"}]"#
        };
        let body = format!(r#"{{"model":"m",{contents},{members}}}"#);
        let error = ModelRequest::read(operation, &Bytes::from(body)).unwrap_err();
        assert_eq!(error.code, Code::UnsupportedParameter, "{members}: {error:?}");
        error.param.unwrap().into_owned()
    };
    for (members, param) in [
        (r#""Model":"expensive""#, "Model"),
        (r#""MAX_TOKENS":90000"#, "MAX_TOKENS"),
        (r#""N":50"#, "N"),
        (r#""max_to\u212aens":1"#, "max_to\u{212a}ens"),
        (r#""\u017ftream":true"#, "\u{17f}tream"),
        (r#""Messages":[]"#, "Messages"),
        (r#""Service_Tier":"priority""#, "Service_Tier"),
        (r#""Priority":1"#, "Priority"),
        (r#""Temperature":1"#, "Temperature"),
        (r#""stream_options":{"Include_Usage":false}"#, "stream_options"),
        (r#""tools":[{"Type":"mcp"}]"#, "tools.Type"),
        (r#""system":[{"Type":"text"}]"#, "system.Type"),
        (r#""input":[{"content":[{"Image_URL":"x"}]}]"#, "input.Image_URL"),
        (r#""input":[{"content":[{"image_url":{"URL":"x"}}]}]"#, "input.image_url.URL"),
        (r#""system":[{"source":{"Url":"x"}}]"#, "system.source.Url"),
    ] {
        assert_eq!(refused(ChatCompletions, members), param, "{members}");
    }
    assert_eq!(refused(Responses, r#""Previous_Response_Id":"r""#), "Previous_Response_Id");
    let long = "M".repeat(200);
    assert!(
        request(ChatCompletions, &format!(r#""{long}":1,"Unheard-Of":1"#))
            .check_fields(&upstream(Vllm))
            .is_ok()
    );
}

#[test]
fn far_too_many_members_and_tools_are_refused() {
    let members = |count: usize| (0..count).map(|at| format!("\"f{at}\":1")).collect::<Vec<_>>().join(",");
    let read = |members: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"a"}}],{members}}}"#);
        ModelRequest::read(ChatCompletions, &Bytes::from(body))
            .map(drop)
            .map_err(|error| error.details[0].code)
    };
    assert_eq!(read(&members(254)), Ok(()));
    assert_eq!(read(&members(255)), Err("too_many"));
    let tools: Vec<_> = (0..65).map(|at| format!(r#"{{"type":"t{at}"}}"#)).collect();
    assert_eq!(read(&format!("\"tools\":[{}]", tools.join(","))), Err("too_many"));
    let same = [r#"{"type":"function"}"#; 1_000].join(",");
    assert_eq!(read(&format!("\"tools\":[{same}]")), Ok(()));
}
