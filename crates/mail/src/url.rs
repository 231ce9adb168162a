//! The destination of e-mails: a folder, or a mail server with its login and TLS mode.

use std::fmt;
use std::net::Ipv6Addr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use kernel::document::values;
use kernel::secrets::{HIDDEN, Secret};

/// The destination of e-mails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailUrl {
    /// A file for each e-mail, in `mail/` in the data folder.
    File,
    /// A mail server.
    Smtp(SmtpServer),
}

/// The address of a mail server, with the TLS mode and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmtpServer {
    /// A name, or an IP address without brackets. The server's certificate must be valid for it.
    pub host: String,
    pub port: u16,
    /// The TLS mode of the connection.
    pub tls: SmtpTls,
    /// The login, if the server needs one.
    pub login: Option<SmtpLogin>,
}

/// The TLS mode of a connection to a mail server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmtpTls {
    /// TLS begins with STARTTLS, before anything else is sent. No e-mail is sent to a server that doesn't
    /// offer STARTTLS.
    StartTls,
    /// TLS begins with the first byte.
    Implicit,
    /// The connection isn't encrypted, for a relay on the same machine.
    None,
}

/// A login at a mail server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmtpLogin {
    /// The name.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// The error for an invalid URL. The specific problem is appended.
const EXPECTED: &str = "expected \"file\", \"smtp://USER:PASSWORD@HOST:587\" (STARTTLS), \
     \"smtps://USER:PASSWORD@HOST:465\" (TLS) or \"smtp://HOST:25?tls=none\"";

/// Characters that must be escaped in a login.
const LOGIN_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl MailUrl {
    /// Parses the URL.
    ///
    /// # Errors
    /// A message with the expected format. It doesn't quote the text, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "file" {
            return Ok(Self::File);
        }
        SmtpServer::parse(text).map(Self::Smtp).map_err(|wrong| match wrong {
            "" => EXPECTED.to_owned(),
            wrong => format!("{EXPECTED}; {wrong}"),
        })
    }
}

impl<'de> Deserialize<'de> for MailUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        values::parsed(deserializer, Self::parse)
    }
}

/// Serializes the URL without its password.
impl Serialize for MailUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Formats the URL without its password.
impl fmt::Display for MailUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Smtp(server) => fmt::Display::fmt(server, f),
        }
    }
}

impl SmtpServer {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("")?;
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let tls = match (scheme, query) {
            ("smtp", None) => SmtpTls::StartTls,
            ("smtps", None) => SmtpTls::Implicit,
            ("smtp", Some("tls=none")) => SmtpTls::None,
            ("smtps", Some(_)) => return Err("an smtps URL has no `?`"),
            ("smtp", Some(_)) => {
                return Err("only `tls=none` can follow a `?`; write `?` in a password as `%3F`");
            }
            _ => return Err(""),
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains(['/', '#']) {
            return Err(
                "only a port can follow the host; write `/` in a password as `%2F`, and `#` as `%23`",
            );
        }
        let (login, server) =
            place.rsplit_once('@').map_or((None, place), |(login, server)| (Some(login), server));
        let login = login.map(SmtpLogin::parse).transpose()?;
        if login.is_some() && tls == SmtpTls::None {
            return Err("a login isn't sent without TLS: remove the login or `tls=none`");
        }
        let (host, port) = host_and_port(server)?;
        let usual = match tls {
            SmtpTls::StartTls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        };
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(usual), tls, login })
    }
}

impl SmtpLogin {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').ok_or("a login is a name, `:` and a password")?;
        let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) if text.is_empty() => Err("the name and the password can't be empty"),
            // NUL separates the fields of AUTH PLAIN (RFC 4616).
            Ok(text) if text.contains(char::is_control) => {
                Err("the name and the password can't contain control characters")
            }
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err("percent-encoded bytes of name and password must be UTF-8"),
        };
        if text.contains('@') {
            return Err("write `@` in a name or password as `%40`");
        }
        Ok(Self { user: decode(user)?, password: Secret::new(decode(password)?) })
    }
}

/// Parses `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the address lacks its `]`")?;
            host.parse::<Ipv6Addr>().map_err(|_| "expected an IPv6 address in brackets")?;
            match port {
                "" => (host, None),
                port => {
                    (host, Some(port.strip_prefix(':').ok_or("only `:` and a port can follow the address")?))
                }
            }
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if host.is_empty() || !(host.bytes().all(letters) || text.starts_with('[')) {
        return Err("the host is a name of letters, digits, `-` and `.`, or an address");
    }
    let number = |port: &str| port.parse().ok().filter(|port| *port > 0);
    let port = port.map(|port| number(port).ok_or("the port is a number from 1 to 65535")).transpose()?;
    Ok((host, port))
}

impl fmt::Display for SmtpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls == SmtpTls::Implicit { "smtps://" } else { "smtp://" })?;
        if let Some(login) = &self.login {
            write!(f, "{}:{HIDDEN}@", utf8_percent_encode(&login.user, LOGIN_ESCAPES))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        f.write_str(if self.tls == SmtpTls::None { "?tls=none" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_server_tls_and_login() {
        let cases = [
            ("smtp://mail.example.com", "smtp://mail.example.com:587", None),
            ("smtp://mail.example.com/", "smtp://mail.example.com:587", None),
            ("smtps://mail.example.com", "smtps://mail.example.com:465", None),
            ("smtp://127.0.0.1?tls=none", "smtp://127.0.0.1:25?tls=none", None),
            ("smtp://localhost:2525?tls=none", "smtp://localhost:2525?tls=none", None),
            ("smtps://[::1]", "smtps://[::1]:465", None),
            ("smtp://[::1]:2525", "smtp://[::1]:2525", None),
            ("smtp://me:hunter2@mail:25", "smtp://me:***@mail:25", Some(("me", "hunter2"))),
            (
                "smtps://me%40example.com:h%3Au%2Fn%25t%C3%A9r@mail",
                "smtps://me%40example.com:***@mail:465",
                Some(("me@example.com", "h:u/n%tér")),
            ),
            ("smtp://me:a:b@mail", "smtp://me:***@mail:587", Some(("me", "a:b"))),
        ];
        for (text, shown, login) in cases {
            let url = MailUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            let MailUrl::Smtp(server) = &url else { panic!("{text}") };
            let found = server.login.as_ref().map(|l| (l.user.as_str(), l.password.expose()));
            assert_eq!(found, login, "{text}");
            assert!(!format!("{url:?}").contains("hunter2"));
        }
        assert_eq!(MailUrl::parse("file").unwrap(), MailUrl::File);
    }

    #[test]
    fn errors_describe_the_format_without_quoting_the_text() {
        let cases = [
            ("hunter2", ""),
            ("", ""),
            ("File", ""),
            ("http://hunter2", ""),
            ("smtp:hunter2", ""),
            ("smtp://", "the host is a name of letters, digits, `-` and `.`, or an address"),
            ("smtp://hunter 2", "the host is a name of letters, digits, `-` and `.`, or an address"),
            ("smtp://mail:0", "the port is a number from 1 to 65535"),
            ("smtp://mail:hunter2", "the port is a number from 1 to 65535"),
            ("smtp://me:hunter2@mail:", "the port is a number from 1 to 65535"),
            ("smtp://[::1", "the address lacks its `]`"),
            ("smtp://[mail]", "expected an IPv6 address in brackets"),
            ("smtp://[::1]25", "only `:` and a port can follow the address"),
            ("smtp://hunter2@mail", "a login is a name, `:` and a password"),
            ("smtp://:hunter2@mail", "the name and the password can't be empty"),
            ("smtp://me:@mail", "the name and the password can't be empty"),
            ("smtp://me:hun%00ter2@mail", "the name and the password can't contain control characters"),
            ("smtp://me:hun%FFter2@mail", "percent-encoded bytes of name and password must be UTF-8"),
            ("smtp://me:hun@ter2@mail", "write `@` in a name or password as `%40`"),
            (
                "smtp://me:hun/ter2@mail",
                "only a port can follow the host; write `/` in a password as `%2F`, and `#` as `%23`",
            ),
            ("smtp://me:hun?ter2@mail", "only `tls=none` can follow a `?`; write `?` in a password as `%3F`"),
            ("smtp://mail?tls=never", "only `tls=none` can follow a `?`; write `?` in a password as `%3F`"),
            ("smtps://mail?tls=none", "an smtps URL has no `?`"),
            (
                "smtp://me:hunter2@mail?tls=none",
                "a login isn't sent without TLS: remove the login or `tls=none`",
            ),
        ];
        for (text, wrong) in cases {
            let error = MailUrl::parse(text).unwrap_err();
            let expected =
                if wrong.is_empty() { EXPECTED.to_owned() } else { format!("{EXPECTED}; {wrong}") };
            assert_eq!(error, expected, "{text}");
        }
    }
}
