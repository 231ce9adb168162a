//! Warnings about settings that are valid but risky for a server that others can reach.

use accounts::passkeys::relying_party::{self, RelyingParty};

use accounts::settings::RegistrationMode;
use kernel::money::Nano;

use super::{Config, DatabaseUrl, MailUrl, variable};

/// Returns a sentence for each such setting: the key, the consequence, and the recommended setting.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if !config.listen.ip().is_loopback() {
        lines.extend(public_listener_warnings(config));
    }
    let url = config.public_url();
    if config.sign_in.passkeys && relying_party::has_address(&url) && RelyingParty::of(&url).is_none() {
        lines.push(format!(
            "`public_url` has an IP address: browsers support passkeys for domain names only; set it to the domain \
             name that users open, or set `sign_in.passkeys = false` ({})",
            variable("public_url")
        ));
    }
    if !config.sign_in.passwords && config.sign_in.providers_file.is_none() {
        lines.push(format!(
            "`sign_in.passwords` is off, and no providers are configured: only operators and users who already have \
             a passkey can sign in; set `sign_in.providers_file` ({})",
            variable("sign_in.providers_file")
        ));
    }
    let databases =
        [("database_url", &config.database_url), ("database_replica_url", &config.database_replica_url)];
    for (key, url) in databases {
        if let Some(DatabaseUrl::Postgres(url)) = url
            && db::trusts_by_default(url)
        {
            lines.push(format!(
                "`{key}` names another machine without sslmode: any server at that address is trusted, even without \
                 TLS; add `sslmode=verify-full&sslrootcert=FILE` ({}), or `sslmode=disable` on a private network",
                variable(key)
            ));
        }
    }
    lines
}

fn public_listener_warnings(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if matches!(config.mail.url, MailUrl::File) {
        lines.push(format!(
            "`mail.url` is `file`: users get no mail, and the log contains working links; set a mail server, \
             such as `smtp://USER:PASSWORD@mail.example.com` ({})",
            variable("mail.url")
        ));
    }
    if !config.public_url().starts_with("https://") {
        lines.push(format!(
            "`public_url` is not https: links in mails send passwords and tokens unencrypted; set the `https://` \
             address that users open ({})",
            variable("public_url")
        ));
    }
    if !config.require_verified_email {
        lines.push(format!(
            "`require_verified_email` is off: accounts with unverified addresses aren't restricted; set \
             `require_verified_email = true` ({})",
            variable("require_verified_email")
        ));
    }
    let gives_credit = config.billing.credit_limit.is_some_and(|limit| limit > Nano::ZERO);
    if gives_credit && config.registration == RegistrationMode::Open && config.catalog_file.is_some() {
        lines.push(format!(
            "`billing.credit_limit` is above 0, and registration is open: anyone can get that credit once per email \
             address; remove it ({}), or set `registration = \"invited\"` ({})",
            variable("billing.credit_limit"),
            variable("registration")
        ));
    }
    if config.tls.certificate_file.is_none() && config.trusted_proxies.is_empty() {
        lines.push(format!(
            "`trusted_proxies` is empty, and the public listener has no TLS: set `tls.certificate_file` and \
             `tls.key_file`, or set this to the proxy that terminates TLS ({})",
            variable("trusted_proxies")
        ));
    }
    lines
}
