//! `tollkeeper master-key …`

use clap::Subcommand;
use serde_json::json;

use crate::access::Trail;
use crate::accounts::signing_keys;
use crate::app::App;
use crate::config::{Config, variable};
use crate::db::Tx;
use crate::error::Error;
use crate::store;
use crate::store::api_keys;
use crate::store::audit_log::{Action, Event};

/// Secrets that are read at a time.
const AT_ONCE: i64 = 500;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Seal every stored secret anew, under `master_key_file`, that is still sealed under `master_key_previous_file`.
    /// Running servers must know both keys
    Rotate {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// How many secrets were sealed anew, and how many were under the new key already.
#[derive(Default)]
struct Resealed {
    signing_keys: u64,
    api_keys: u64,
    already: u64,
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Rotate { json: as_json } = command;
    if config.master_key_previous.is_none() && config.master_key_previous_file.is_none() {
        return Err(format!(
            "no older key is configured: put the new key into `master_key_file` and name the one that is in use today by \
             `master_key_previous_file` ({})",
            variable("master_key_previous_file")
        ));
    }
    let Resealed { signing_keys, api_keys, already } = super::runtime()?.block_on(rotate(config))?;
    super::print(&if *as_json {
        json!({ "signing_keys": signing_keys, "api_keys": api_keys, "already": already }).to_string()
    } else {
        format!(
            "Sealed {signing_keys} signing keys and the secrets of {api_keys} API keys anew; {already} were under the new master key \
             already."
        )
    });
    Ok(())
}

async fn rotate(config: Config) -> Result<Resealed, String> {
    let app = super::app(config).await?;
    let resealed = async {
        let mut tx = app.db.write().await?;
        let mut resealed = Resealed::default();
        let keys = signing_keys::reseal(&app.accounts, &mut tx).await?;
        (resealed.signing_keys, resealed.already) = (keys.anew, keys.already);
        reseal_api_keys(&app, &mut tx, &mut resealed).await?;
        let event = Event {
            action: Action::MasterKeyRotated,
            target: "master-key".to_owned(),
            organization_id: None,
        };
        store::audit_log::record(&mut tx, &Trail::operator(), &event, app.clock.now(), &app.random).await?;
        tx.commit().await?;
        Ok::<_, Error>(resealed)
    };
    resealed.await.map_err(|error| format!("{error}; nothing was changed"))
}

async fn reseal_api_keys(app: &App, tx: &mut Tx, resealed: &mut Resealed) -> Result<(), Error> {
    let mut after = Vec::new();
    loop {
        let page = api_keys::sealed_after(tx, &after, AT_ONCE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after.clone_from(&last.secret_hash);
        for secret in &page {
            let place = secret.api_key_id.to_string();
            match reseal(app, &secret.sealed, &place, || format!("API key {place}"))? {
                Some(sealed) => {
                    api_keys::set_sealed(tx, &secret.secret_hash, &sealed).await?;
                    resealed.api_keys += 1;
                }
                None => resealed.already += 1,
            }
        }
    }
}

fn reseal(
    app: &App,
    sealed: &[u8],
    place: &str,
    what: impl Fn() -> String,
) -> Result<Option<Vec<u8>>, Error> {
    let resealed = app.sealer.reseal(sealed, place, &app.random);
    resealed
        .map_err(|error| Error::internal(format_args!("the secret of {} can't be opened: {error}", what())))
}
