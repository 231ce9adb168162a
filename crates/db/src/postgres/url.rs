//! URLs of PostgreSQL servers, with libpq's meaning, and the additional parameter `pool_mode`. Unsupported
//! parameters are refused by name.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use kernel::hosts;
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs};

use super::CONNECT_TIMEOUT;
use super::session::PoolMode;
use super::tls::{Roots, Trust};
use crate::Error;

/// The default of `connect_timeout`, per host.
const HOST_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// TCP keepalive: idle time, interval and number of probes. The server uses the same values for its end.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);
/// The default of `tcp_user_timeout`: the time that sent data may stay unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Parameters of libpq that aren't supported. Errors name only these: other names may be part of a password.
const UNSUPPORTED: &[&str] = &[
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslpassword",
    "sslsni",
    "tty",
];

/// The purpose of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Reads and writes.
    Primary,
    /// Reports.
    Standby,
}

/// The settings of a URL: one configuration per host, in the order of attempts, and the trusted servers.
pub(super) struct Target {
    pub(super) hosts: Vec<Config>,
    pub(super) trust: Trust,
    /// `true` to connect without TLS if a host doesn't offer it or the handshake fails.
    pub(super) allow_plain: bool,
    pub(super) pool_mode: PoolMode,
}

/// Reads a URL, but not the files that it refers to.
pub(super) fn read(url: &str, purpose: Purpose) -> Result<Target, Error> {
    let (place, parameters) = split(url);
    let (mut kept, mut mode, mut roots, mut session, mut pool_mode) = (Vec::new(), None, None, None, None);
    for parameter in parameters {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let decoded = || percent_decode_str(value).decode_utf8_lossy().into_owned();
        match name {
            "sslmode" => mode = Some(decoded()),
            "sslrootcert" => roots = Some(decoded()).filter(|path| !path.is_empty()),
            "target_session_attrs" => session = Some(decoded()),
            "pool_mode" => pool_mode = Some(decoded()),
            name if UNSUPPORTED.contains(&name) => {
                return Err(refused(&format!("the parameter {name} is not supported: remove it")));
            }
            _ => kept.push(parameter),
        }
    }
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    // The parser's error may quote the URL, which contains the password.
    let config = Config::from_str(&format!("{place}{query}"))
        .map_err(|_| refused("it isn't like postgres://user:password@host:port/database?sslmode=…"))?;
    let (trust, ssl_mode) = trust(mode.as_deref(), roots)?;
    if config.get_ssl_negotiation() == SslNegotiation::Direct {
        return Err(refused("sslnegotiation=direct is not supported: remove it"));
    }
    if config.get_load_balance_hosts() != LoadBalanceHosts::Disable {
        return Err(refused(
            "load_balance_hosts=random is not supported: hosts are tried in the given order",
        ));
    }
    let hosts = host_entries(&config)?;
    let session = session_attrs(session.as_deref(), purpose, hosts.len())?;
    let pool_mode = match pool_mode.as_deref() {
        None | Some("session") => PoolMode::Session,
        Some("transaction") => PoolMode::Transaction,
        Some(_) => return Err(refused("pool_mode must be session or transaction")),
    };
    let allow_plain = ssl_mode == SslMode::Prefer;
    let hosts = hosts.into_iter().map(|host| host_config(&config, host, ssl_mode, session)).collect();
    Ok(Target { hosts, trust, allow_plain, pool_mode })
}

/// Returns `true` if the URL is that of another machine and has no `sslmode`. Then any server is trusted.
pub fn trusts_by_default(url: &str) -> bool {
    let (_, parameters) = split(url);
    let target = read(url, Purpose::Primary).or_else(|_| read(url, Purpose::Standby));
    let trusts_any = target.is_ok_and(|target| {
        matches!(target.trust, Trust::AnyServer) && target.hosts.iter().any(is_on_another_machine)
    });
    trusts_any && !parameters.iter().any(|parameter| parameter.starts_with("sslmode="))
}

fn is_on_another_machine(host: &Config) -> bool {
    let named = |host: &Host| match host {
        Host::Unix(_) => false,
        Host::Tcp(name) => !hosts::is_loopback(name),
    };
    match host.get_hostaddrs() {
        [] => host.get_hosts().iter().any(named),
        addresses => !addresses.iter().all(IpAddr::is_loopback),
    }
}

/// Splits off the parameters: at the first `?` after the login, as the driver does.
fn split(url: &str) -> (&str, Vec<&str>) {
    let server = url.find('@').map_or(0, |at| at + 1);
    let query = url.get(server..).and_then(|rest| rest.find('?')).map(|at| server + at);
    match query.and_then(|at| url.split_at_checked(at)) {
        Some((place, query)) => {
            let parameters = query.trim_start_matches('?').split('&').filter(|one| !one.is_empty());
            (place, parameters.collect())
        }
        None => (url, Vec::new()),
    }
}

fn trust(mode: Option<&str>, roots: Option<String>) -> Result<(Trust, SslMode), Error> {
    let roots = roots.map(|path| match path.as_str() {
        "system" => Roots::System,
        _ => Roots::File(PathBuf::from(path)),
    });
    // As in libpq: the system's authorities sign certificates of anyone, so only the name identifies the
    // server.
    let by_default = if roots == Some(Roots::System) { "verify-full" } else { "prefer" };
    let mode = mode.unwrap_or(by_default);
    if roots == Some(Roots::System) && mode != "verify-full" {
        return Err(refused("sslrootcert=system needs sslmode=verify-full"));
    }
    let needed = |roots: Option<Roots>| {
        roots.ok_or_else(|| {
            refused(&format!(
                "sslmode={mode} needs sslrootcert=FILE with the certificates of trusted authorities, or \
                 sslrootcert=system with verify-full"
            ))
        })
    };
    match mode {
        "disable" => Ok((Trust::NoTls, SslMode::Disable)),
        "prefer" => Ok((Trust::AnyServer, SslMode::Prefer)),
        // As in libpq: the server's certificate is verified if an authority is given.
        "require" => Ok((roots.map_or(Trust::AnyServer, Trust::Authority), SslMode::Require)),
        "verify-ca" => Ok((Trust::Authority(needed(roots)?), SslMode::Require)),
        "verify-full" => Ok((Trust::AuthorityAndName(needed(roots)?), SslMode::Require)),
        _ => Err(refused("sslmode must be disable, prefer, require, verify-ca or verify-full")),
    }
}

fn session_attrs(value: Option<&str>, purpose: Purpose, hosts: usize) -> Result<TargetSessionAttrs, Error> {
    match (purpose, value) {
        // A single host may be a proxy that briefly forwards to a standby. `any` allows that.
        (Purpose::Primary, Some("any")) if hosts == 1 => Ok(TargetSessionAttrs::Any),
        (Purpose::Primary, None | Some("any" | "read-write" | "primary")) => {
            Ok(TargetSessionAttrs::ReadWrite)
        }
        (Purpose::Primary, Some(_)) => Err(refused("target_session_attrs must be read-write")),
        (Purpose::Standby, None | Some("any" | "read-only" | "standby")) => Ok(TargetSessionAttrs::ReadOnly),
        (Purpose::Standby, Some(_)) => Err(refused("target_session_attrs must be read-only")),
    }
}

/// A host of the URL.
struct HostEntry {
    host: Host,
    address: Option<IpAddr>,
    port: Option<u16>,
}

fn host_entries(config: &Config) -> Result<Vec<HostEntry>, Error> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0 {
        return Err(refused("it names no host"));
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(refused("the numbers of hosts and hostaddrs differ"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(refused("the numbers of hosts and ports differ"));
    }
    let place = |index: usize| {
        let address = addresses.get(index).copied();
        // Without a host name, the certificate must be valid for the address.
        let named = address.map(|address| Host::Tcp(address.to_string()));
        let host = hosts.get(index).cloned().or(named)?;
        Some(HostEntry { host, address, port: ports.get(index).or(ports.first()).copied() })
    };
    (0..count).map(place).collect::<Option<_>>().ok_or_else(|| refused("it names no host"))
}

/// Returns the configuration for a single host.
fn host_config(config: &Config, place: HostEntry, ssl_mode: SslMode, session: TargetSessionAttrs) -> Config {
    let mut one = Config::new();
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    one.application_name(config.get_application_name().unwrap_or("tollkeeper"));
    // As in libpq, a Unix socket has no TLS.
    let on_this_machine = matches!(place.host, Host::Unix(_)) && place.address.is_none();
    one.ssl_mode(if on_this_machine { SslMode::Disable } else { ssl_mode });
    match place.host {
        Host::Tcp(name) => one.host(name),
        Host::Unix(path) => one.host_path(path),
    };
    if let Some(address) = place.address {
        one.hostaddr(address);
    }
    if let Some(port) = place.port {
        one.port(port);
    }
    one.target_session_attrs(session);
    one.channel_binding(config.get_channel_binding());
    let (idle, interval, retries) = KEEPALIVE;
    let limit = config.get_connect_timeout().copied().unwrap_or(HOST_CONNECT_TIMEOUT).min(CONNECT_TIMEOUT);
    one.connect_timeout(limit)
        .tcp_user_timeout(config.get_tcp_user_timeout().copied().unwrap_or(TCP_USER_TIMEOUT))
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle().min(idle))
        .keepalives_interval(config.get_keepalives_interval().unwrap_or(interval))
        .keepalives_retries(config.get_keepalives_retries().unwrap_or(retries));
    one
}

fn refused(what: &str) -> Error {
    Error::Internal(format!("the URL of the database: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(url: &str) -> Target {
        read(url, Purpose::Primary).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn refusal(url: &str, purpose: Purpose) -> String {
        read(url, purpose).err().unwrap_or_else(|| panic!("{url} is accepted")).to_string()
    }

    #[test]
    fn hosts_keep_their_order_and_must_take_writes() {
        let target = primary("postgres://me:p%40ss@a:1,b,[::1]:3/db?application_name=x&options=-c%20a%3Db");
        let hosts: Vec<_> = target.hosts.iter().map(|one| (one.get_hosts(), one.get_ports())).collect();
        let tcp = |name: &str| [Host::Tcp(name.to_owned())];
        assert_eq!(hosts, [(&tcp("a")[..], &[1][..]), (&tcp("b"), &[5432]), (&tcp("::1"), &[3])]);
        for one in &target.hosts {
            assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
            assert_eq!((one.get_user(), one.get_password()), (Some("me"), Some(&b"p@ss"[..])));
            assert_eq!((one.get_dbname(), one.get_options()), (Some("db"), Some("-c a=b")));
            assert_eq!(one.get_application_name(), Some("x"));
        }
        for (url, expected) in [
            ("postgres://h/db", TargetSessionAttrs::ReadWrite),
            ("postgres://h/db?target_session_attrs=any", TargetSessionAttrs::Any),
            ("postgres://h/db?target_session_attrs=read-write", TargetSessionAttrs::ReadWrite),
            ("postgres:///db?host=a,b&target_session_attrs=primary", TargetSessionAttrs::ReadWrite),
            ("postgres://a,b/db?target_session_attrs=any", TargetSessionAttrs::ReadWrite),
        ] {
            assert_eq!(primary(url).hosts[0].get_target_session_attrs(), expected, "{url}");
        }
        for (url, expected) in [
            ("postgres://h/db", PoolMode::Session),
            ("postgres://h/db?pool_mode=session", PoolMode::Session),
            ("postgres://h/db?sslmode=disable&pool_mode=transaction", PoolMode::Transaction),
        ] {
            assert_eq!(primary(url).pool_mode, expected, "{url}");
        }
        let standby = read("postgres://h/db", Purpose::Standby).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(standby.hosts[0].get_target_session_attrs(), TargetSessionAttrs::ReadOnly);
    }

    #[test]
    fn tls_follows_libpq() {
        let file = || Roots::File(PathBuf::from("/etc/ca file.pem"));
        let named = "sslrootcert=%2Fetc%2Fca%20file.pem";
        let cases = [
            (String::new(), Trust::AnyServer, SslMode::Prefer),
            ("sslmode=disable".to_owned(), Trust::NoTls, SslMode::Disable),
            ("sslmode=prefer".to_owned(), Trust::AnyServer, SslMode::Prefer),
            ("sslmode=require".to_owned(), Trust::AnyServer, SslMode::Require),
            (format!("sslmode=require&{named}"), Trust::Authority(file()), SslMode::Require),
            (format!("{named}&sslmode=verify-ca"), Trust::Authority(file()), SslMode::Require),
            (format!("sslmode=verify-full&{named}"), Trust::AuthorityAndName(file()), SslMode::Require),
            ("sslrootcert=system".to_owned(), Trust::AuthorityAndName(Roots::System), SslMode::Require),
        ];
        for (query, trust, mode) in cases {
            let target = primary(&format!("postgres://me:a?b@h/db?{query}"));
            assert_eq!((&target.trust, target.hosts[0].get_ssl_mode()), (&trust, mode), "{query}");
            assert_eq!(target.allow_plain, mode == SslMode::Prefer);
        }
        let socket = primary("postgres://me@%2Frun%2Fpg,h/db?sslmode=require");
        let modes: Vec<_> = socket.hosts.iter().map(Config::get_ssl_mode).collect();
        assert_eq!(modes, [SslMode::Disable, SslMode::Require], "a socket has no TLS");
        let address = primary("postgres:///db?hostaddr=10.0.0.1&sslmode=require");
        assert_eq!(
            address.hosts[0].get_hosts(),
            [Host::Tcp("10.0.0.1".to_owned())],
            "the name for the handshake"
        );
    }

    #[test]
    fn refusals_name_the_parameter_and_no_secret() {
        let cases = [
            (
                "postgres://me:hunter2@h/db?sslmode=allow",
                "disable, prefer, require, verify-ca or verify-full",
            ),
            ("postgres://me:hunter2@h/db?sslmode=verify-full", "needs sslrootcert=FILE"),
            ("postgres://me:hunter2@h/db?sslmode=verify-ca&sslrootcert=", "needs sslrootcert=FILE"),
            ("postgres://me:hunter2@h/db?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
            ("postgres://me:hunter2@h/db?sslcert=hunter2", "sslcert is not supported"),
            ("postgres://me:hunter2@h/db?sslnegotiation=direct", "sslnegotiation=direct is not supported"),
            ("postgres://me:hunter2@h/db?load_balance_hosts=random", "in the given order"),
            ("postgres://me:hunter2@h/db?hunter2=x", "isn't like"),
            ("postgres://me:hunter2@h:port/db", "isn't like"),
            ("postgres://me:hunter2@h/db?target_session_attrs=standby", "must be read-write"),
            ("postgres://me:hunter2@a,b,c/db?port=1,2", "ports"),
            ("postgres:///db?password=hunter2", "no host"),
            ("postgres://me:hunter2@h/db?pool_mode=statement", "pool_mode must be session or transaction"),
        ];
        for (url, expected) in cases {
            let said = refusal(url, Purpose::Primary);
            assert!(said.contains(expected) && !said.contains("hunter2"), "{url}: {said}");
        }
        assert!(
            refusal("postgres://h/db?target_session_attrs=read-write", Purpose::Standby)
                .contains("read-only")
        );
    }
}
