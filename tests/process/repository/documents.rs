//! Documents and comments. Every link to a document must resolve, and no comment may cite a text outside of
//! the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

const FOLDERS: [&str; 9] =
    ["src", "crates", "tests", "bench/src", "fuzz/fuzz_targets", "docs", "packaging", ".ci", ".cargo"];
const FILES: [&str; 5] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Cargo.toml", "clippy.toml"];

/// Returns every text file of the repository, by path.
fn texts() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting: Vec<PathBuf> = FOLDERS.iter().chain(&FILES).map(PathBuf::from).collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.insert(path, text);
        }
    }
    found
}

/// Returns the anchor that GitHub creates for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the anchors of a document. A repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut is_code) = (BTreeSet::new(), false);
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let base = anchor(heading.trim_start_matches('#').trim());
        let free = (0..).map(|n| if n == 0 { base.clone() } else { format!("{base}-{n}") });
        found.extend(free.into_iter().find(|anchor| !found.contains(anchor)));
    }
    found
}

/// Normalizes a path: `a/b/../c` becomes `a/c`.
fn normalize(path: &Path) -> PathBuf {
    let mut normalize = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normalize.pop()),
            Component::CurDir => {}
            other => normalize.push(other),
        }
    }
    normalize
}

/// Returns the targets of the links `[…](…)` in a document.
fn markdown_links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// Returns the names of documents below `docs/` in a text, with or without an anchor.
fn document_names(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '#');
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', '-', '#']));
    words.filter(|word| word.starts_with("docs/") && word.contains(".md")).collect()
}

#[test]
fn links_between_documents_resolve() {
    let texts = texts();
    let mut missing = Vec::new();
    let mut followed = 0;
    for (path, text) in &texts {
        let is_document = path.extension().is_some_and(|extension| extension == "md");
        let links: Vec<PathBuf> = if is_document {
            let folder = path.parent().unwrap();
            let own = |link: &&str| !link.contains("://") && !link.starts_with("mailto:");
            let whole = |link: &str| match link.strip_prefix('#') {
                Some(anchor) => PathBuf::from(format!("{}#{anchor}", path.display())),
                None => folder.join(link),
            };
            markdown_links(text).into_iter().filter(own).map(whole).collect()
        } else {
            document_names(text).into_iter().map(PathBuf::from).collect()
        };
        for link in links {
            followed += 1;
            let link = normalize(&link).display().to_string();
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(f, a)| (f, Some(a)));
            let target = Path::new(file);
            let is_there = match anchor {
                Some(anchor) => texts.get(target).is_some_and(|text| anchors(text).contains(anchor)),
                None => target.exists(),
            };
            if !is_there {
                missing.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(followed > 100, "{followed} links are too few to be all");
}

/// Phrases with which comments once cited texts outside of the repository.
const ABSENT_TEXTS: [&str; 4] =
    ["(decisions", "decisions, section", "interface description", "of the interface)"];

/// Standards that may be cited with a section number.
const STANDARDS: [&str; 10] =
    ["rfc", "uts", "csp", "nist", "fips", "openid", "owasp", "html", "unicode", "sqlite's file format"];

#[test]
fn no_text_cites_an_absent_document() {
    let own = Path::new("tests/process/repository/documents.rs");
    let mut cited = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| *path != own) {
        let mut before = String::new();
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            // A section of a standard is cited with the standard's name, which may be at the end of the
            // previous line.
            let both = format!("{} {lower}", std::mem::replace(&mut before, lower.clone()));
            let is_standard = STANDARDS.iter().any(|name| both.contains(name));
            let by_number =
                lower.split("section ").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if ABSENT_TEXTS.iter().any(|words| lower.contains(words)) || (by_number && !is_standard) {
                cited.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(cited.is_empty(), "{cited:#?}");
}

/// Returns the words in backticks that name a file or a folder of the repository.
fn paths(text: &str) -> BTreeSet<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    let roots = ["src/", "crates/", "tests/", "docs/", "bench/", "fuzz/", "catalog/", "packaging/", ".ci/"];
    let is_path =
        |span: &&str| roots.iter().any(|root| span.starts_with(root)) && !span.contains([' ', '{', '*', '<']);
    spans.filter(is_path).collect()
}

#[test]
fn paths_in_the_guides_exist() {
    for guide in ["docs/architecture.md", "CONTRIBUTING.md", "README.md"] {
        let text = std::fs::read_to_string(guide).unwrap();
        let missing: Vec<_> = paths(&text).into_iter().filter(|path| !Path::new(path).exists()).collect();
        assert!(missing.is_empty(), "{guide}: {missing:?}");
    }
    let architecture = std::fs::read_to_string("docs/architecture.md").unwrap();
    assert!(architecture.lines().count() <= 150);
    assert!(paths(&architecture).len() > 40);
}

/// Returns our crates and their dependencies on each other, one line per crate.
fn crate_dependencies() -> Vec<String> {
    let arguments = ["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"];
    let output = std::process::Command::new(env!("CARGO")).args(arguments).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The default members are the crates that are shipped. They exclude the load program, the fuzz targets,
    // and the tests' shared code.
    let shipped = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let packages: Vec<_> = packages.iter().filter(|package| shipped.contains(&package["id"])).collect();
    let name = |package: &serde_json::Value| package["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<_> = packages.iter().copied().map(name).collect();
    let line = |package: &serde_json::Value| {
        let normalize = |dependency: &&serde_json::Value| dependency["kind"].is_null();
        let used = package["dependencies"].as_array().unwrap().iter().filter(normalize).map(name);
        let used: BTreeSet<_> = used.filter(|used| ours.contains(used)).collect();
        format!("{}: {}", name(package), used.into_iter().collect::<Vec<_>>().join(" ")).trim_end().to_owned()
    };
    let mut lines: Vec<_> = packages.iter().copied().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn architecture_lists_the_crates() {
    let text = std::fs::read_to_string("docs/architecture.md").unwrap();
    let block = format!("\n```\n{}\n```\n", crate_dependencies().join("\n"));
    assert!(text.contains(&block), "docs/architecture.md should say:{block}");
}

#[test]
fn handlers_and_their_frame_do_not_use_the_database() {
    let lines = crate_dependencies();
    for name in ["api", "web"] {
        let line = lines.iter().find(|line| line.starts_with(&format!("{name}: "))).unwrap();
        assert!(!line.split(' ').any(|used| used == "db"), "{line}");
    }
    let web = lines.iter().find(|line| line.starts_with("web: ")).unwrap();
    for subject in ["accounts", "tenants", "catalog", "keys", "billing"] {
        assert!(!web.split(' ').any(|used| used == subject), "`web` doesn't depend on a subject: {web}");
    }
}
