//! Sample code that uses a new key.

use catalog::Kind;
use keys::api_keys::ApiKey;
use keys::rules::permissions::Permission;

use super::tools::{self, Tool};
use crate::console::Console;

/// Sample code that uses a new key, according to its permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Samples {
    pub curl: String,
    pub python: String,
    pub node: String,
}

/// The kind of call that a sample makes.
enum Call {
    Chat(String),
    Embeddings(String),
    Models,
}

impl Samples {
    /// Returns code with the public URL and this secret.
    pub fn new(console: &Console, key: &ApiKey, secret: &str) -> Self {
        let base = format!("{}/v1", console.public_url);
        let (path, body, python, node) = match call(console, key) {
            Call::Chat(model) => (
                "/chat/completions",
                Some(format!(
                    r#"{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}"#
                )),
                format!(
                    "answer = client.chat.completions.create(\n    model=\"{model}\",\n    messages=[{{\"role\": \
                     \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.choices[0].message.content)"
                ),
                format!(
                    "const answer = await client.chat.completions.create({{\n  model: \"{model}\",\n  messages: \
                     [{{ role: \"user\", content: \"Hello\" }}],\n}});\nconsole.log(answer.choices[0].message.content);"
                ),
            ),
            Call::Embeddings(model) => (
                "/embeddings",
                Some(format!(r#"{{"model": "{model}", "input": "Hello"}}"#)),
                format!(
                    "answer = client.embeddings.create(model=\"{model}\", input=\"Hello\")\nprint(answer.data[0].embedding)"
                ),
                format!(
                    "const answer = await client.embeddings.create({{ model: \"{model}\", input: \"Hello\" \
                     }});\nconsole.log(answer.data[0].embedding);"
                ),
            ),
            Call::Models => (
                "/models",
                None,
                "for model in client.models.list():\n    print(model.id)".to_owned(),
                "for await (const model of client.models.list()) console.log(model.id);".to_owned(),
            ),
        };
        let mut curl = format!("curl {base}{path} \\\n  -H \"Authorization: Bearer {secret}\"");
        if let Some(body) = body {
            curl.push_str(&format!(" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"));
        }
        let client = format!("base_url=\"{base}\", api_key=\"{secret}\"");
        let python = format!("from openai import OpenAI\n\nclient = OpenAI({client})\n{python}");
        let client = format!("{{ baseURL: \"{base}\", apiKey: \"{secret}\" }}");
        let node = format!("import OpenAI from \"openai\";\n\nconst client = new OpenAI({client});\n{node}");
        Self { curl, python, node }
    }
}

/// Returns the settings of tools with this secret; empty for a key that can't chat with a model of this
/// server.
pub fn tools(console: &Console, key: &ApiKey, secret: &str) -> Vec<Tool> {
    match call(console, key) {
        Call::Chat(model) => tools::tools(&console.public_url, secret, &model),
        Call::Embeddings(_) | Call::Models => Vec::new(),
    }
}

/// Returns a call that the key may make and this server supports.
fn call(console: &Console, key: &ApiKey) -> Call {
    let catalog = console.catalog.now();
    let is_allowed = |id: &String| {
        key.restrictions.models.as_ref().is_none_or(|models| models.iter().any(|model| model == id))
    };
    let served = |kind: Kind| {
        let mut models = catalog.models().filter(|model| model.kind == kind && !model.routes.is_empty());
        models.find(|model| is_allowed(&model.id)).map(|model| model.id.clone())
    };
    let may = |permission| key.attributes.permissions.contains(permission);
    if let Some(model) = served(Kind::Chat).filter(|_| may(Permission::Chat)) {
        return Call::Chat(model);
    }
    match served(Kind::Embeddings).filter(|_| may(Permission::Embeddings)) {
        Some(model) => Call::Embeddings(model),
        None => Call::Models,
    }
}
