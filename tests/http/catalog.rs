//! The catalog file: reloads while the service runs, refused files, and the check command.

mod check;
mod processes;
mod refusals;
mod reload;
mod upstream_check;
mod upstreams;
mod versions;

use std::path::{Path, PathBuf};

use support::world::Folder;

/// A catalog file in its own folder.
struct File {
    pub path: PathBuf,
    _folder: Folder,
}

impl File {
    fn new(models: &[&str]) -> Self {
        let folder = Folder::new();
        let file = Self { path: folder.0.join("catalog.toml"), _folder: folder };
        file.write(&catalog(models));
        file
    }

    /// Replaces the file atomically.
    fn write(&self, text: &str) {
        write(&self.path, text);
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Returns the text of a catalog; each model is an id followed by the lines that differ from the defaults.
fn catalog(models: &[&str]) -> String {
    let mut text = String::new();
    for model in models {
        let (id, changes) = model.split_once('\n').unwrap_or((model, ""));
        let mut lines = vec![
            "kind = \"chat\"",
            "description = \"A model\"",
            "owned_by = \"acme\"",
            "created = 1",
            "max_tokens = 100",
            "max_requests_per_min = 60",
            "max_concurrent_requests = 5",
            "prices = [{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"0.001\", completion_tokens = \"0.002\" }]",
        ];
        for change in changes.lines() {
            lines.retain(|line| line.split(' ').next() != change.split(' ').next());
            lines.push(change);
        }
        text.push_str(&format!("[[models]]\nid = \"{id}\"\n{}\n", lines.join("\n")));
    }
    text
}
