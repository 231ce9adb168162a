//! Code samples of model calls, for the shell and for Python.

use kernel::error::Error;
use serde::Serialize;

/// The samples of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Samples {
    pub curl: String,
    pub python: String,
}

/// A chat call. Its JSON is the body that is sent to the gateway.
#[derive(Clone, Debug, Serialize)]
pub struct ChatCall {
    pub model: String,
    pub messages: Vec<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<kernel::money::Ppm>,
}

/// A message of a chat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    pub role: &'static str,
    pub content: String,
}

#[derive(Serialize)]
struct EmbeddingsCall<'a> {
    model: &'a str,
    input: &'a str,
}

/// Returns samples of a chat call. `public_url` is the server's URL for users.
pub fn of_chat(public_url: &str, call: &ChatCall) -> Result<Samples, Error> {
    let mut arguments = vec![format!("model={}", literal(&call.model)?)];
    let mut messages = Vec::new();
    for Message { role, content } in &call.messages {
        messages.push(format!("        {{\"role\": \"{role}\", \"content\": {}}},\n", literal(content)?));
    }
    arguments.push(format!("messages=[\n{}    ]", messages.concat()));
    arguments.extend(call.max_tokens.map(|tokens| format!("max_tokens={tokens}")));
    arguments.extend(call.temperature.map(|temperature| format!("temperature={temperature}")));
    Ok(Samples {
        curl: curl(public_url, "chat/completions", call)?,
        python: python(
            public_url,
            "chat.completions",
            &arguments,
            "print(response.choices[0].message.content)",
        ),
    })
}

/// Returns samples of an embeddings call.
pub fn of_embeddings(public_url: &str, model: &str, input: &str) -> Result<Samples, Error> {
    let arguments = [format!("model={}", literal(model)?), format!("input={}", literal(input)?)];
    Ok(Samples {
        curl: curl(public_url, "embeddings", &EmbeddingsCall { model, input })?,
        python: python(public_url, "embeddings", &arguments, "print(response.data[0].embedding)"),
    })
}

/// Returns a JSON string, which is also a valid string literal in Python.
fn literal(text: &str) -> Result<String, Error> {
    serde_json::to_string(text).map_err(Error::internal)
}

fn curl(public_url: &str, path: &str, body: &impl Serialize) -> Result<String, Error> {
    let body = serde_json::to_string_pretty(body).map_err(Error::internal)?;
    // Within single quotes, a shell interprets only single quotes.
    let body = body.replace('\'', "'\\''");
    Ok(format!(
        "curl {public_url}/v1/{path} \\\n  -H \"Authorization: Bearer $TOLLKEEPER_API_KEY\" \\\n  \
         -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    ))
}

fn python(public_url: &str, resource: &str, arguments: &[String], last: &str) -> String {
    let arguments: String = arguments.iter().map(|argument| format!("    {argument},\n")).collect();
    format!(
        "import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url=\"{public_url}/v1\",\n    \
         api_key=os.environ[\"TOLLKEEPER_API_KEY\"],\n)\nresponse = client.{resource}.create(\n{arguments})\n\
         {last}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_for_each_language() {
        let content = "It's \"so\"\n$HOME \\ é".to_owned();
        let call = ChatCall {
            model: "chat-1".to_owned(),
            messages: vec![Message { role: "user", content }],
            max_tokens: Some(20),
            temperature: kernel::money::Ppm::parse("0.5"),
        };
        let Samples { curl, python } = of_chat("https://ai.example/base", &call).unwrap();
        assert!(curl.starts_with("curl https://ai.example/base/v1/chat/completions \\\n"), "{curl}");
        assert!(curl.contains(r#""content": "It'\''s \"so\"\n$HOME \\ é""#), "{curl}");
        assert!(curl.ends_with("\"max_tokens\": 20,\n  \"temperature\": 0.5\n}'"), "{curl}");
        assert!(python.contains(r#"{"role": "user", "content": "It's \"so\"\n$HOME \\ é"},"#), "{python}");
        assert!(python.contains("    max_tokens=20,\n    temperature=0.5,\n)"), "{python}");
    }
}
