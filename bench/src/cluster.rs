//! A throwaway PostgreSQL server, if PostgreSQL is installed: in a temporary folder, on a Unix socket there,
//! with the default durability.
//!
//! A small shell script supervises the server and reads a pipe from this process. When this process ends for
//! any reason, the pipe closes, and the script stops the server and removes the folder.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The script. `$1` is the folder of initdb and postgres, `$2` the temporary folder.
const KEEPER: &str = r#"
bin=$1 dir=$2
trap '' INT TERM HUP
umask 077
mkdir "$dir" || exit 1
as=
if [ "$(id -u)" = 0 ]; then
    # PostgreSQL refuses to run as root.
    user=postgres; id "$user" >/dev/null 2>&1 || user=nobody
    chown "$user" "$dir"
    if command -v setpriv >/dev/null; then
        as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups --"
    else
        as="runuser -u $user --"
    fi
fi
cd "$dir"
$as "$bin/initdb" -D "$dir/data" -U postgres --auth=trust --no-sync --encoding=UTF8 --locale=C >"$dir/log" 2>&1 || echo failed
$as "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c max_connections=200 >"$dir/log" 2>&1 </dev/null &
server=$!
tries=0
until grep -q ready "$dir/data/postmaster.pid" 2>/dev/null; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then echo failed; break; fi
    sleep 0.05
done
echo done
read -r _
kill -INT "$server" 2>/dev/null
wait "$server"
cd /
rm -rf "$dir"
"#;

/// A running server, which is stopped when this is dropped.
pub struct Cluster {
    folder: PathBuf,
    keeper: Child,
    commands: Option<ChildStdin>,
}

impl Cluster {
    /// Starts a cluster; returns `None` if PostgreSQL isn't installed.
    pub fn start() -> Result<Option<Self>, String> {
        let Some(binaries) = binaries() else { return Ok(None) };
        // A short path, because a socket's path is limited to about a hundred bytes.
        let folder = Path::new("/tmp").join(format!("tollkeeper-bench-pg-{}", std::process::id()));
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).args([&binaries, &folder]);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C in this program must not reach the script, which has to clean up.
        let mut keeper = keeper.process_group(0).spawn().map_err(|error| error.to_string())?;
        let commands = keeper.stdin.take();
        let answers = keeper.stdout.take().ok_or("the supervisor of PostgreSQL has no output")?;
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line).map_err(|error| error.to_string())?;
        let cluster = Self { folder, keeper, commands };
        if line.trim() == "done" {
            return Ok(Some(cluster));
        }
        let log = std::fs::read_to_string(cluster.folder.join("log")).unwrap_or_default();
        Err(format!("PostgreSQL did not start: {log}"))
    }

    /// Creates a new, empty database and returns its URL.
    pub async fn database(&self, name: &str) -> Result<String, String> {
        let url = self.url("postgres");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.map_err(|error| error.to_string())?;
        drop(client);
        connection.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(self.url(name))
    }

    fn url(&self, database: &str) -> String {
        let host = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/{database}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.commands.take());
        // The process may already have exited, in which case nothing is left to do.
        drop(self.keeper.wait());
    }
}

/// Returns the folder of initdb and postgres: the one in PATH, or the newest version installed on Debian and
/// similar systems.
fn binaries() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(complete) {
        // If `postgres` is a symlink, the other binaries are next to its target.
        let real = folder.join("postgres").canonicalize().ok()?;
        return real.parent().map(Path::to_owned);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, folder)| complete(folder))
        .collect();
    found.sort();
    found.pop().map(|(_, folder)| folder)
}
