//! The number of web searches that an upstream may make for a request.

use crate::operation::Operation;

/// The number of searches that are reserved if the request doesn't limit them.
const ASSUMED_SEARCHES: i64 = 10;

/// The members of a request that concern searches.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SearchLimits {
    /// The maximum number of searches by the request's search tools.
    tools: Option<i64>,
    /// `max_tool_calls`, which limits all tools that a server runs.
    pub(super) max_tool_calls: Option<i64>,
    /// `true` if the request has `web_search_options`.
    pub(super) has_options: bool,
}

impl SearchLimits {
    /// Adds a tool that searches the web.
    pub(super) fn add_tool(&mut self, max_uses: Option<i64>) {
        let searches = max_uses.unwrap_or(ASSUMED_SEARCHES);
        self.tools = Some(self.tools.unwrap_or_default().saturating_add(searches));
    }

    /// Returns the maximum number of searches that the request may make.
    pub(super) fn most(self, operation: Operation) -> i64 {
        let of_options = if self.has_options { ASSUMED_SEARCHES } else { 0 };
        let of_tools = match (self.tools, self.max_tool_calls) {
            (Some(_), Some(calls)) if operation == Operation::Responses => calls,
            (tools, _) => tools.unwrap_or_default(),
        };
        of_tools.saturating_add(of_options)
    }
}

#[cfg(test)]
mod tests {
    use Operation::{ChatCompletions, Messages, Responses};
    use hyper::body::Bytes;

    use super::*;
    use crate::request::ModelRequest;

    #[test]
    fn searches_are_those_that_the_request_allows() {
        let cases = [
            (ChatCompletions, "", 0),
            (ChatCompletions, r#","web_search_options":{}"#, 10),
            (ChatCompletions, r#","web_search_options":null"#, 0),
            (ChatCompletions, r#","tools":[{"type":"function","function":{"name":"web_search"}}]"#, 0),
            (ChatCompletions, r#","tools":[{"type":"web_search"}]"#, 10),
            (Responses, r#","tools":[{"type":"web_search"}]"#, 10),
            (Responses, r#","tools":[{"type":"Web_Search_Preview_2025_03_11"}]"#, 10),
            (Responses, r#","max_tool_calls":3,"tools":[{"type":"function"},{"type":"web_search"}]"#, 3),
            (Responses, r#","tools":[{"type":"web_search"}],"max_tool_calls":0"#, 0),
            (Responses, r#","tools":[{"type":"web_search"}],"max_tool_calls":"25""#, 25),
            (Responses, r#","tools":[{"type":"web_search"}],"max_tool_calls":-1"#, 10),
            (Responses, r#","tools":[{"type":"web_search"}],"max_tool_calls":null"#, 10),
            // Other tools don't search the web.
            (Responses, r#","max_tool_calls":3"#, 0),
            (Responses, r#","max_tool_calls":3,"tools":[{"type":"file_search"}]"#, 0),
            // A server may ignore the limit of another provider's API.
            (Responses, r#","tools":[{"type":"web_search","max_uses":1}]"#, 10),
            (Responses, r#","tools":[{"type":"namespace","tools":[{"type":"web_search"}]}]"#, 10),
            (Messages, r#","tools":[{"type":"web_search_20250305","name":"web_search"}]"#, 10),
            (Messages, r#","tools":[{"max_uses":5,"type":"web_search_20250305","name":"web_search"}]"#, 5),
            (Messages, r#","tools":[{"type":"web_search_20250305","max_uses":"many"}]"#, 10),
            (Messages, r#","tools":[{"name":"f","input_schema":{},"max_uses":5}],"max_tool_calls":3"#, 0),
            (
                Messages,
                r#","tools":[{"type":"web_search_20250305","max_uses":5},{"type":"web_search_20260209","max_uses":2}]"#,
                7,
            ),
        ];
        for (operation, members, due) in cases {
            let body = format!(
                r#"{{"model":"m","input":"Hi","messages":[{{"role":"user","content":"Hi"}}],"max_tokens":100{members}}}"#
            );
            let request = ModelRequest::read(operation, &Bytes::from(body)).unwrap();
            assert_eq!(request.most_searches(), due, "{operation:?} {members}");
        }
    }
}
