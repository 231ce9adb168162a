//! Instructions to set up common tools. The text is also in docs/tools.md.

/// A tool and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tool {
    /// The name in the ids of the page's elements.
    pub id: &'static str,
    pub name: &'static str,
    /// The URL of the page about the tool.
    pub guide: String,
    pub blocks: Vec<Block>,
}

/// A block of lines for a file or a shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The id on the page.
    pub id: String,
    /// The file that the lines belong in; `None` for a shell.
    pub file: Option<&'static str>,
    pub text: String,
}

/// The file that lines belong in, if any, and the lines, with the placeholders `{origin}`, `{key}` and
/// `{model}`.
type Lines = (Option<&'static str>, &'static str);

const TOOLS: [(&str, &str, &[Lines]); 8] = [
    (
        "claude-code",
        "Claude Code",
        &[(
            None,
            "export ANTHROPIC_BASE_URL={origin}\n\
             export ANTHROPIC_AUTH_TOKEN={key}\n\
             export ANTHROPIC_MODEL={model}\n\
             export ANTHROPIC_DEFAULT_HAIKU_MODEL={model}\n\
             claude -p \"hi\"",
        )],
    ),
    (
        "codex",
        "Codex",
        &[
            (
                Some("~/.codex/config.toml"),
                "model = \"{model}\"\n\
                 model_provider = \"tollkeeper\"\n\
                 \n\
                 [model_providers.tollkeeper]\n\
                 name = \"tollkeeper\"\n\
                 base_url = \"{origin}/v1\"\n\
                 env_key = \"TOLL_KEY\"",
            ),
            (None, "export TOLL_KEY={key}\ncodex exec \"hi\""),
        ],
    ),
    (
        "opencode",
        "OpenCode",
        &[
            (
                Some("~/.config/opencode/opencode.json"),
                r#"{
  "model": "tollkeeper/{model}",
  "provider": {
    "tollkeeper": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {
        "baseURL": "{origin}/v1",
        "apiKey": "{env:TOLL_KEY}"
      },
      "models": { "{model}": {} }
    }
  }
}"#,
            ),
            (None, "export TOLL_KEY={key}\nopencode run \"hi\""),
        ],
    ),
    (
        "qwen-code",
        "Qwen Code",
        &[(
            None,
            "export OPENAI_BASE_URL={origin}/v1\n\
             export OPENAI_API_KEY={key}\n\
             export OPENAI_MODEL={model}\n\
             qwen --auth-type openai -p \"hi\"",
        )],
    ),
    (
        "pi",
        "pi",
        &[
            (
                Some("~/.pi/agent/models.json"),
                r#"{
  "providers": {
    "tollkeeper": {
      "baseUrl": "{origin}/v1",
      "api": "openai-completions",
      "apiKey": "TOLL_KEY",
      "models": [{ "id": "{model}" }]
    }
  }
}"#,
            ),
            (None, "export TOLL_KEY={key}\npi --provider tollkeeper --model {model} -p \"hi\""),
        ],
    ),
    (
        "continue",
        "Continue",
        &[
            (
                Some("~/.continue/config.yaml"),
                "name: tollkeeper\n\
                 version: 1.0.0\n\
                 schema: v1\n\
                 models:\n  \
                 - name: {model}\n    \
                 provider: openai\n    \
                 model: {model}\n    \
                 apiBase: {origin}/v1\n    \
                 apiKey: {key}\n    \
                 roles: [chat]",
            ),
            (None, "cn --config ~/.continue/config.yaml -p \"hi\""),
        ],
    ),
    (
        "aider",
        "aider",
        &[(
            None,
            "export OPENAI_API_BASE={origin}/v1\n\
             export OPENAI_API_KEY={key}\n\
             aider --model openai/{model} --message \"hi\"",
        )],
    ),
    (
        "llm",
        "llm",
        &[
            (
                Some("~/.config/io.datasette.llm/extra-openai-models.yaml"),
                "- model_id: {model}\n  \
                 model_name: {model}\n  \
                 api_base: {origin}/v1\n  \
                 api_key_name: tollkeeper\n  \
                 supports_tools: true",
            ),
            (None, "llm keys set tollkeeper --value {key}\nllm -m {model} \"hi\""),
        ],
    ),
];

/// Returns the settings of each tool, with the public URL, a key and a model. None of these contains braces.
pub fn tools(public_url: &str, key: &str, model: &str) -> Vec<Tool> {
    let fill =
        |text: &str| text.replace("{origin}", public_url).replace("{key}", key).replace("{model}", model);
    let tool = |(id, name, blocks): &(&'static str, &'static str, &[Lines])| {
        let block = |(at, (file, text)): (usize, &Lines)| Block {
            id: format!("{id}-{at}"),
            file: *file,
            text: fill(text),
        };
        let guide = format!("{public_url}/docs/{id}");
        Tool { id, name, guide, blocks: blocks.iter().enumerate().map(block).collect() }
    };
    TOOLS.iter().map(tool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each tool was tested with the configuration in the docs.
    #[test]
    fn tools_are_set_up_as_the_docs_say() {
        let page = include_str!("../../../../../../docs/tools.md");
        for tool in tools("http://127.0.0.1:8080", "YOUR_KEY", "svc-1") {
            let section =
                page.split("\n## ").find(|section| section.starts_with(&format!("{}\n", tool.name)));
            let section = section.unwrap_or_else(|| panic!("no section {}", tool.name));
            for block in tool.blocks {
                assert!(section.contains(&format!("\n{}\n```", block.text)), "{}: {}", tool.name, block.text);
                assert!(block.file.is_none_or(|file| section.contains(file)), "{}", tool.name);
            }
        }
    }
}
