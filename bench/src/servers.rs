//! The server processes. If `taskset` is available, they run on the first core, or the first few, with one
//! tokio worker per core, and the client uses the other cores. All of them end with this program, even if it
//! is killed.

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::client;

/// The variable with the port of the bare servers.
pub const PORT_VARIABLE: &str = "BENCH_PORT";
/// The variable with the database of the bare servers, if they have one.
pub const DATABASE_VARIABLE: &str = "BENCH_DATABASE";

/// The variable with the number of threads of a tokio runtime; one per core by default.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// The built-in models. Runs use them with rate limits that are too high to be reached.
const CATALOG: &str = include_str!("../../catalog/default.toml");
/// Only for throwaway databases: nothing of value is ever sealed with it.
pub const MASTER_KEY: &str = "YmVuY2htYXJrcyBzZWFsIG5vdGhpbmcgb2YgdmFsdWU=";

/// A process that is killed when this is dropped.
pub struct Server(Child);

impl Server {
    /// Starts the bare axum servers, and returns their address.
    pub fn bare(cores: Cores, database: Option<&str>) -> Result<(Self, SocketAddr), String> {
        let address = free_address()?;
        let this = std::env::current_exe()
            .map_err(|error| format!("can't find the path of this program: {error}"))?;
        let mut command = cores.of_servers(&this);
        command.arg("bare").env(PORT_VARIABLE, address.port().to_string()).stderr(Stdio::inherit());
        if let Some(database) = database {
            command.env(DATABASE_VARIABLE, database);
        }
        Ok((Self::spawn(&mut command)?, address))
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Starts the process.
    pub fn spawn(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Self).map_err(|error| format!("can't start {command:?}: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have exited, in which case nothing is left to do.
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

/// Limits that a single user at a single address would soon reach. They are set only for this build, because
/// an earlier build may not support all of them.
const BOUNDS: [(&str, &str); 11] = [
    ("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "1000000"),
    ("TOLLKEEPER_BILLING__FURTHER_CREDIT_LIMIT", "1000000000"),
    ("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "1000000"),
    ("TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR", "1000000"),
    ("TOLLKEEPER_LIMITS__MAILS_PER_ADDRESS_HOUR", "1000000"),
    ("TOLLKEEPER_LIMITS__ORGANIZATIONS_PER_PERSON", "1000000"),
    ("TOLLKEEPER_LIMITS__PROJECTS_PER_ORGANIZATION", "1000000"),
    ("TOLLKEEPER_LIMITS__OPEN_INVITATIONS_PER_ORGANIZATION", "1000000"),
    ("TOLLKEEPER_LIMITS__API_KEYS_PER_PROJECT", "1000000"),
    ("TOLLKEEPER_LIMITS__PASSWORD_CHANGES_PER_HOUR", "1000000"),
    ("TOLLKEEPER_LIMITS__SESSIONS_PER_PERSON", "10000"),
];

/// The folders of all servers so far; an e-mail may be in any of them.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Returns the token in the e-mail to this address, if it has been written.
pub fn mailed_token(address: &str) -> Option<String> {
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder.join("mail")).ok()).flatten();
    let texts = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mail = texts.filter(|text| text.contains(address)).last()?;
    let is_token = |line: &&str| {
        line.len() == 43 && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    mail.lines().map(str::trim_end).find(is_token).map(str::to_owned)
}

/// A running service.
pub struct Tollkeeper {
    pub server: Server,
    pub public: SocketAddr,
    pub service: SocketAddr,
    pub token: String,
}

impl Tollkeeper {
    /// Starts the service in its default configuration, except for addresses, folder, database and the
    /// models' rates and concurrency.
    pub async fn start(
        program: &Path,
        folder: &Path,
        database: &str,
        log: &Path,
        cores: Cores,
    ) -> Result<Self, String> {
        Self::launch(cores.of_servers(program), folder, database, log).await
    }

    /// Starts the service on every core, with its default number of threads.
    pub async fn on_all_cores(
        program: &Path,
        folder: &Path,
        database: &str,
        log: &Path,
    ) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.env_remove(WORKERS);
        Self::launch(command, folder, database, log).await
    }

    async fn launch(mut command: Command, folder: &Path, database: &str, log: &Path) -> Result<Self, String> {
        let (public, service) = configure(&mut command, folder, database, log)?;
        Self::spawn(command, public, service, folder).await
    }

    /// Starts the service in front of this upstream, a table of the catalog with the id `stub`. The first
    /// model is routed to it.
    pub async fn behind(
        mut command: Command,
        folder: &Path,
        database: &str,
        log: &Path,
        upstream: &str,
    ) -> Result<Self, String> {
        let (public, service) = configure(&mut command, folder, database, log)?;
        let catalog = write_catalog(folder, "{ upstream = \"stub\", model = \"stub-1\" }", upstream)?;
        command.env("TOLLKEEPER_CATALOG_FILE", catalog);
        Self::spawn(command, public, service, folder).await
    }

    async fn spawn(
        mut command: Command,
        public: SocketAddr,
        service: SocketAddr,
        folder: &Path,
    ) -> Result<Self, String> {
        let server = Server::spawn(&mut command)?;
        client::wait_for(public, "/readyz").await.map_err(|error| {
            format!("{error}; to see the log of {}, use `--log FILE`", command.get_program().display())
        })?;
        let token =
            std::fs::read_to_string(folder.join("service.token")).map_err(|error| error.to_string())?;
        Ok(Self { server, public, service, token: token.trim().to_owned() })
    }

    /// Returns the command that starts the service on every core, and the addresses of its listeners.
    pub fn command(
        program: &Path,
        folder: &Path,
        database: &str,
        log: &Path,
    ) -> Result<(Command, SocketAddr, SocketAddr), String> {
        let mut command = Command::new(program);
        command.env_remove(WORKERS);
        let (public, service) = configure(&mut command, folder, database, log)?;
        Ok((command, public, service))
    }
}

/// Configures the service with environment variables, and returns the addresses of its listeners.
fn configure(
    command: &mut Command,
    folder: &Path,
    database: &str,
    log: &Path,
) -> Result<(SocketAddr, SocketAddr), String> {
    let (public, service) = (free_address()?, free_address()?);
    let log_file =
        File::options().append(true).create(true).open(log).map_err(|e| format!("{}: {e}", log.display()))?;
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
    set_database(command, folder, database)?;
    command
        .arg("serve")
        .env("TOLLKEEPER_LISTEN", public.to_string())
        .env("TOLLKEEPER_SERVICE_LISTEN", service.to_string())
        .stderr(log_file);
    if is_this_build(command) {
        command.envs(BOUNDS);
    }
    Ok((public, service))
}

/// Sets the folder, the database and the models of a server or a command. This process's own configuration
/// isn't passed on.
pub fn set_database(command: &mut Command, folder: &Path, database: &str) -> Result<(), String> {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOLLKEEPER_"))
    {
        command.env_remove(name);
    }
    let has_upstreams = is_this_build(command);
    command
        .current_dir(folder)
        .env("TOLLKEEPER_CATALOG_FILE", quick_catalog(folder, has_upstreams)?)
        .env("TOLLKEEPER_DATA_DIR", folder)
        .env("TOLLKEEPER_MASTER_KEY", MASTER_KEY);
    if database != "sqlite" {
        command.env("TOLLKEEPER_DATABASE_URL", database);
    }
    Ok(())
}

/// Returns `true` if the command, or the program that it pins to cores, is this program.
fn is_this_build(command: &Command) -> bool {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    std::env::current_exe().is_ok_and(|this| words.into_iter().any(|word| word == this.as_os_str()))
}

/// Writes the built-in models to a file, with rate limits that no run reaches. The first model is routed to
/// the built-in demo, unless the program is an earlier build without upstreams.
pub fn quick_catalog(folder: &Path, has_upstreams: bool) -> Result<PathBuf, String> {
    let demo = "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\nmax_concurrent = 100000\n";
    if has_upstreams {
        write_catalog(folder, "{ upstream = \"demo\" }", demo)
    } else {
        write_catalog(folder, "", "")
    }
}

/// Writes the built-in models to a file, with rate limits that no run reaches. Adds this route to the first
/// model, and adds these upstreams.
fn write_catalog(folder: &Path, route: &str, upstreams: &str) -> Result<PathBuf, String> {
    let catalog = folder.join("catalog.toml");
    let mut text = CATALOG
        .replace("_per_min = 60\n", "_per_min = 1000000\n")
        .replace("_concurrent_requests = 5\n", "_concurrent_requests = 1000000\n");
    if !route.is_empty() {
        text = text.replace("id = \"svc-1\"\n", &format!("id = \"svc-1\"\nroutes = [{route}]\n"));
        text = format!("{text}\n{upstreams}");
    }
    std::fs::write(&catalog, text).map_err(|error| format!("{}: {error}", catalog.display()))?;
    Ok(catalog)
}

/// Ends this process when its parent ends, which closes the pipe between them.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
}

/// The assignment of cores.
#[derive(Clone, Copy)]
pub struct Cores {
    pub count: usize,
    /// The number of cores of the servers.
    pub servers: usize,
    /// Whether the servers use the first cores, and this program the others. If that isn't possible, all
    /// processes share all cores.
    pub pinned: bool,
}

impl Cores {
    /// Assigns the first core to the servers.
    pub fn share() -> Self {
        Self::split(1)
    }

    /// Assigns the first cores to the servers. If no other cores are left, this program shares them.
    pub fn split(servers: usize) -> Self {
        // Read only once, because this program is later pinned to fewer cores.
        static COUNT: OnceLock<usize> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = *COUNT.get_or_init(cores);
        let first = if count > servers { servers } else { 0 };
        let mut taskset = Command::new("taskset");
        taskset.args(["-c", "-p", &format!("{first}-{}", count - 1), &std::process::id().to_string()]);
        taskset.stdout(Stdio::null()).stderr(Stdio::null());
        let moved = taskset.status().is_ok_and(|status| status.success());
        Self { count, servers, pinned: moved && count > servers }
    }

    /// Returns an assignment of all cores to all processes, with one worker per server.
    pub const fn unpinned() -> Self {
        Self { count: 1, servers: 1, pinned: false }
    }

    /// Returns a command that runs the program on the servers' cores, with one worker per core.
    pub fn of_servers(self, program: &Path) -> Command {
        let mut command = if self.pinned { Command::new("taskset") } else { Command::new(program) };
        if self.pinned {
            command.args(["-c", &format!("0-{}", self.servers - 1)]).arg(program);
        }
        command.env(WORKERS, self.servers.to_string());
        command
    }
}

/// Returns a loopback address with a free port.
pub fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener.and_then(|listener| listener.local_addr()).map_err(|error| format!("no free port: {error}"))
}

/// A folder that is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("tollkeeper-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Creates a subfolder for one service.
    pub fn place(&self, number: usize) -> Result<PathBuf, String> {
        let path = self.0.join(number.to_string());
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that can't be removed stay in the temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
