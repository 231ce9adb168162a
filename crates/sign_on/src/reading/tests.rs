use std::path::Path;

use super::*;
use crate::settings::{Kind, Link, Provision, Role};

const ORGANIZATION: &str = "org_01hzzzzzzzzzzzzzzzzzzzzzzz";

fn read(text: &str) -> Result<ProvidersFile, Vec<String>> {
    read_text("p.toml", text, Path::new("/nowhere"), |name| match name {
        "ACME_SECRET" => Ok("s3cret".to_owned()),
        _ => Err(VarError::NotPresent),
    })
    .map_err(|error| error.problems)
}

const GOOD: &str = "[[providers]]\nid = \"acme\"\nname = \"Acme\"\nissuer = \"https://id.example.com/\"\n\
                    client_id = \"tollkeeper\"\nclient_secret_env = \"ACME_SECRET\"\n";

#[test]
fn defaults_are_the_careful_ones() {
    assert_eq!(read("").unwrap().providers, vec![]);
    let providers = read(GOOD).unwrap().providers;
    let [acme] = providers.as_slice() else { panic!("one") };
    assert_eq!(acme.issuer, "https://id.example.com/");
    assert_eq!((acme.kind, acme.provision, acme.link), (Kind::OpenId, Provision::None, Link::Confirm));
    assert_eq!((acme.session_hours, acme.takes_logouts, acme.trusts_second_factor), (12, false, false));
    assert_eq!(acme.scopes, ["openid", "email", "profile"]);
    assert_eq!((acme.client_secret.expose(), acme.membership.is_none()), ("s3cret", true));
    let github = GOOD.replace("issuer = \"https://id.example.com/\"", "kind = \"github\"");
    let providers = read(&github).unwrap().providers;
    assert_eq!((providers[0].issuer.as_str(), providers[0].kind), ("https://github.com", Kind::GitHub));
}

#[test]
fn every_key_is_read() {
    let text = format!(
        "{GOOD}domains = [\"Example.com\"]\norganization = \"{ORGANIZATION}\"\ndefault_role = \"member\"\n\
         groups_claim = \"groups\"\nroles = {{ \"tk-admins\" = \"admin\", boss = \"owner\" }}\nmap_owner = true\nexclusive = true\n\
         provision = \"domain\"\nlink = \"verified_email\"\nemail_verified_as_text = true\ntrusts_second_factor = true\n\
         acr_values = [\"gold\"]\nsession_hours = 720\nback_channel_logout = true\nlogout_token_type = \"any\"\nscopes = [\"openid\", \"groups\"]\n"
    );
    let providers = read(&text).unwrap().providers;
    let acme = &providers[0];
    let membership = acme.membership.as_ref().unwrap();
    assert_eq!(membership.organization_id.to_string(), ORGANIZATION);
    assert_eq!(membership.roles.get("tk-admins"), Some(&Role::Admin));
    assert_eq!((membership.default_role, membership.is_exclusive), (Role::Member, true));
    assert_eq!((acme.domains.as_slice(), acme.session_hours), (["example.com".to_owned()].as_slice(), 720));
    assert_eq!(
        (acme.provision, acme.link, acme.takes_logouts, acme.takes_any_logout_type),
        (Provision::Domain, Link::VerifiedEmail, true, true)
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "providres = 1\n[[providers]]\nid = \"Confirm!\"\nissuer = \"http://id.example.com\"\nclient_secret = \"hunter2\"\n\
                session_hours = 0\nscope = [\"openid\"]\n[[providers]]\nid = \"b\"\nname = \"B\"\nissuer = \"https://b.example\"\n\
                client_id = \"c\"\nclient_secret_env = \"NONE\"\nroles = { x = \"owner\", y = \"king\" }\nlink = \"verified_email\"\n";
    let problems = read(text).unwrap_err();
    let expected = [
        "p.toml:1: unknown key `providres` (did you mean `providers`?): write `[[providers]]` and its keys below",
        "p.toml:2: provider `Confirm!`: the key `client_id` is missing: write the client's id, as the provider gave it",
        "p.toml:2: provider `Confirm!`: the key `name` is missing: write a button label of 1 to 40 \
         characters",
        "p.toml:3: provider `Confirm!`: `id`: expected 1 to 32 lower-case letters, digits and `-`, such as \"google\", found \
         \"Confirm!\"",
        "p.toml:4: provider `Confirm!`: `issuer`: expected a URL that starts with `https://` (`http://` on this machine only), \
         without login, query or fragment, found \"http://id.example.com\"",
        "p.toml:5: provider `Confirm!`: `client_secret`: don't write the secret in this file: put it into a \
         separate file, and set `client_secret_file` to its path",
        "p.toml:6: provider `Confirm!`: `session_hours`: expected a whole number from 1 to 720, found 0",
        "p.toml:7: provider `Confirm!`: unknown key `scope` (did you mean `scopes`?)",
        "p.toml:13: provider `b`: `client_secret_env`: the environment variable NONE isn't set",
        "p.toml:14: provider `b`: `roles`: \"y\": expected \"member\", \"admin\" or \"owner\", found \"king\"",
        "p.toml:15: provider `b`: `link`: \"verified_email\" needs `domains`: list this provider's own domains",
    ];
    assert_eq!(problems, expected);
    assert!(!problems.join(" ").contains("hunter2"));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let organization = format!("organization = \"{ORGANIZATION}\"\n");
    let groups = format!("{organization}groups_claim = \"groups\"\n");
    for (more, says) in [
        ("default_role = \"admin\"\n".to_owned(), "`default_role` needs `organization`"),
        (format!("{organization}exclusive = true\n"), "`exclusive` needs `groups_claim`"),
        (format!("{organization}default_role = \"owner\"\n"), "everyone would be an owner"),
        (format!("{groups}roles = {{ x = \"owner\" }}\n"), "needs `map_owner = true`"),
        ("provision = \"domain\"\n".to_owned(), "\"domain\" needs `domains`"),
        ("acr_values = [\"gold\"]\n".to_owned(), "`acr_values` needs `trusts_second_factor = true`"),
        ("scopes = [\"email\"]\n".to_owned(), "`openid` is missing"),
        ("client_secret_file = \"x\"\n".to_owned(), "name one of them"),
        (GOOD.to_owned(), "another provider has it: use a different one"),
        (GOOD.replace("\"acme\"", "\"other\""), "list each issuer only once"),
        ("kind = \"github\"\ntrusts_second_factor = true\n".to_owned(), "GitHub doesn't support it"),
    ] {
        let problems = read(&format!("{GOOD}{more}")).unwrap_err();
        assert!(problems.iter().any(|problem| problem.contains(says)), "{more}: {problems:?}");
    }
    for issuer in ["common/v2.0", "organizations/v2.0", "consumers/v2.0"] {
        let text =
            GOOD.replace("https://id.example.com/", &format!("https://login.microsoftonline.com/{issuer}"));
        assert!(read(&text).unwrap_err()[0].contains("every organization"), "{issuer}");
    }
    let tenant = GOOD.replace("https://id.example.com/", "https://login.microsoftonline.com/0000-11/v2.0");
    assert!(read(&tenant).is_ok());
    assert!(read("a = [").unwrap_err()[0].starts_with("p.toml:1: this is not valid TOML"));
}
