//! Guides for common tools: docs/tools.md, with the URL of this installation.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

use super::reference::slug;

const SOURCE: &str = include_str!("../../../../../docs/tools.md");
/// The example URL in the source.
const EXAMPLE_URL: &str = "http://127.0.0.1:8080";
/// The text at the beginning of every section about a tool.
const TOOL_MARK: &str = "Version ";

/// The guides.
#[derive(Debug)]
pub struct Guides {
    /// The introduction for all tools, as HTML.
    pub introduction: String,
    pub general: Vec<Guide>,
    pub tools: Vec<Guide>,
}

/// A section of the source.
#[derive(Debug)]
pub struct Guide {
    pub title: String,
    /// The path segment of a tool's page, and the id of a section.
    pub slug: String,
    pub html: String,
}

impl Guides {
    /// Returns the guides for an installation.
    pub fn new(public_url: &str) -> Self {
        let source = SOURCE.replace(EXAMPLE_URL, public_url);
        let mut sections = source.split("\n## ");
        let introduction = sections.next().unwrap_or_default();
        // The first line is the title.
        let introduction = introduction.split_once('\n').map_or("", |(_, rest)| rest);
        let sections = sections.filter_map(|section| section.split_once('\n'));
        let (tools, general): (Vec<_>, Vec<_>) =
            sections.partition(|(_, text)| text.trim_start().starts_with(TOOL_MARK));
        let guides = |sections: Vec<(&str, &str)>| {
            let guide = |(title, text): (&str, &str)| Guide {
                title: title.to_owned(),
                slug: slug(title),
                html: to_html(text),
            };
            sections.into_iter().map(guide).collect()
        };
        Self { introduction: to_html(introduction), general: guides(general), tools: guides(tools) }
    }
}

/// Converts Markdown to HTML. Code blocks can get the focus, so that users can scroll them without a mouse.
fn to_html(markdown: &str) -> String {
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES).map(|event| match event {
        Event::Start(Tag::CodeBlock(_)) => Event::Html(r#"<pre tabindex="0"><code>"#.into()),
        Event::End(TagEnd::CodeBlock) => Event::Html("</code></pre>\n".into()),
        other => other,
    });
    let mut written = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut written, events);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guides_have_the_address_of_the_installation() {
        let guides = Guides::new("https://llm.example.com");
        assert!(guides.introduction.contains("https://llm.example.com/v1"));
        let general: Vec<_> = guides.general.iter().map(|guide| guide.slug.as_str()).collect();
        assert_eq!(general, ["when-something-is-wrong", "how-long-a-context-is"]);
        let slugs: Vec<_> = guides.tools.iter().map(|guide| guide.slug.as_str()).collect();
        assert_eq!(slugs[..3], ["claude-code", "codex", "opencode"]);
        assert!(slugs.contains(&"openais-sdk-for-python") && slugs.contains(&"vercels-ai-sdk"));
        for guide in &guides.tools {
            assert!(!guide.html.contains("127.0.0.1"), "{}", guide.title);
            assert!(guide.html.contains("llm.example.com"), "{}", guide.title);
            assert!(guide.html.contains("<pre tabindex=\"0\"><code>"), "{}", guide.title);
        }
        let claude = &guides.tools[0].html;
        let (export, wrong) =
            ("export ANTHROPIC_BASE_URL=https://llm.example.com\n", "<td>the sentence, at once</td>");
        assert!(claude.contains(export) && claude.contains(wrong), "{claude}");
    }

    #[test]
    fn code_is_escaped() {
        let html = to_html("```sh\nread < a && \"b\"\n```\n\n`<x>`\n");
        assert_eq!(
            html,
            "<pre tabindex=\"0\"><code>read &lt; a &amp;&amp; \"b\"\n</code></pre>\n<p><code>&lt;x&gt;</code></p>\n"
        );
    }
}
