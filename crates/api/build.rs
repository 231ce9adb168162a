//! Collects the doc comments of the handlers for the OpenAPI document. For each `pub async fn` in `src/`, the
//! table contains its path, its summary (the first paragraph) and its description (the rest).

use std::fmt::Write;
use std::path::Path;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let mut table = String::from("pub(super) const DOCS: &[(&str, &str, &str)] = &[\n");
    collect(Path::new("src"), "", &mut table)?;
    table.push_str("];\n");
    let folder = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("Cargo sets OUT_DIR"))?;
    std::fs::write(Path::new(&folder).join("handler_docs.rs"), table)
}

fn collect(folder: &Path, module: &str, table: &mut String) -> std::io::Result<()> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    paths.sort_by_key(std::fs::DirEntry::path);
    for path in paths.iter().map(std::fs::DirEntry::path) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let inner = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
        if path.is_dir() {
            collect(&path, &inner, table)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            note_handlers(&std::fs::read_to_string(&path)?, &inner, table);
        }
    }
    Ok(())
}

fn note_handlers(source: &str, module: &str, table: &mut String) {
    let mut docs = String::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            docs.push_str(text.trim());
            docs.push('\n');
        } else if let Some(rest) = line.strip_prefix("pub async fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            let (summary, description) = docs.split_once("\n\n").unwrap_or((&docs, ""));
            let summary = summary.trim().trim_end_matches('.');
            let description = description.trim().replace('\n', " ");
            // Writing to a `String` never fails.
            writeln!(table, "({:?}, {summary:?}, {description:?}),", format!("{module}::{name}"))
                .unwrap_or_default();
            docs.clear();
        } else {
            docs.clear();
        }
    }
}
