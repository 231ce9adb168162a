//! The types of tools and their classes, which show who runs a tool and whether it may cost extra.

use std::borrow::Cow;

use crate::names::shown;

/// The class of a feature that a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// A tool that the client runs.
    ClientTool,
    /// A tool that a server runs.
    HostedTool,
    /// A web search that the request offers among its tools without forcing its use.
    OfferedSearch,
    /// A tool of another type.
    UnknownTool,
    /// A reference by id to content stored at a server.
    Reference,
    /// A value of a field that may cost extra.
    Costly,
}

/// Prefixes of the types of tools that a server runs. Such tools may access the network or cost extra.
const HOSTED: &[&str] = &[
    "mcp",
    "web_search",
    "web_fetch",
    "code_interpreter",
    "code_execution",
    "file_search",
    "image_generation",
    "computer_use",
    "advisor",
];

/// Tools that the client runs, or that are part of the prompt.
const CLIENT: &[&str] =
    &["function", "custom", "local_shell", "apply_patch", "shell", "namespace", "tool_search"];

/// Prefixes of the types of such tools in Anthropic's API, where a type ends with a date.
const CLIENT_DATED: &[&str] = &["bash_", "text_editor_", "computer_2", "memory_", "tool_search_tool_"];

/// Returns the name of a tool in errors and lists, and its class. `is_inner` is `true` for a part of another
/// tool, or of a message.
pub(super) fn tool(kind: &str, is_inner: bool) -> (Cow<'static, str>, Class) {
    let lower = kind.to_ascii_lowercase();
    if let Some(kind) = CLIENT.iter().find(|known| **known == kind) {
        return (Cow::Owned(format!("tools.{kind}")), Class::ClientTool);
    }
    if let Some(family) = HOSTED.iter().find(|family| lower.starts_with(**family)) {
        let is_offered = *family == "web_search" && !is_inner;
        let class = if is_offered { Class::OfferedSearch } else { Class::HostedTool };
        return (Cow::Owned(format!("tools.{family}")), class);
    }
    let is_dated = CLIENT_DATED.iter().any(|beginning| kind.starts_with(beginning));
    let class = if is_dated { Class::ClientTool } else { Class::UnknownTool };
    (Cow::Owned(format!("tools.{}", shown(kind))), class)
}

/// Returns `true` for the type of a tool with which a server searches the web.
pub(super) fn is_web_search(kind: &str) -> bool {
    const FAMILY: &str = "web_search";
    kind.get(..FAMILY.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(FAMILY))
}

/// Returns `true` if the client runs a tool of type `shell` with this environment.
pub(super) fn is_local_environment(value: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Environment<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    value == "null" || serde_json::from_str::<Environment<'_>>(value).is_ok_and(|found| found.kind == "local")
}

/// Returns a list of tools without web searches; `None` if `tools` isn't a list.
pub(super) fn without_searches(tools: &[u8]) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Tool<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Cow<'a, str>,
    }
    let tools: Vec<&serde_json::value::RawValue> = serde_json::from_slice(tools).ok()?;
    let is_search = |text: &str| {
        serde_json::from_str::<Tool<'_>>(text)
            .is_ok_and(|Tool { kind }| tool(&kind, false).1 == Class::OfferedSearch)
    };
    let kept: Vec<_> = tools.into_iter().map(|tool| tool.get()).filter(|text| !is_search(text)).collect();
    Some(format!("[{}]", kept.join(",")).into_bytes())
}
