//! The cost of a decision alone, and of its individual steps. The code behind authorize runs in this process
//! on one thread, without HTTP, for a cached key with every restriction that doesn't need money.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tollkeeper::app::App;
use tollkeeper::billing::books::Lifetime;
use tollkeeper::billing::decision::{CallRequest, decide};
use tollkeeper::clock::Clock;
use tollkeeper::config::Config;
use tollkeeper::ids::OrganizationId;
use tollkeeper::kernel::limiter::{Subject, key_for};
use tollkeeper::keys::model_callers::Credential;
use tollkeeper::keys::rules::permissions::Permission;
use tollkeeper::keys::secret::ApiKeySecret;

use crate::servers::{Cores, Folder, MASTER_KEY, Tollkeeper, quick_catalog};
use crate::{report, tenant};

/// The number of consecutive decisions. The rates of the key and of the model allow a million at once.
const AT_ONCE: u32 = 100_000;
const PREFIX: &str = "tk_";
const MODEL: &str = "svc-1";
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

/// Runs the measurement and prints the results.
pub async fn run(rounds: u32) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    let secret = {
        let this = std::env::current_exe()
            .map_err(|error| format!("can't find the path of this program: {error}"))?;
        let service =
            Tollkeeper::start(&this, &place, "sqlite", "/dev/null".as_ref(), Cores::unpinned()).await?;
        tenant::restricted_key(service.public).await?
    };
    let environment = [
        ("TOLLKEEPER_DATA_DIR", place.display().to_string()),
        ("TOLLKEEPER_CATALOG_FILE", quick_catalog(&place, true)?.display().to_string()),
        ("TOLLKEEPER_MASTER_KEY", MASTER_KEY.to_owned()),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value));
    let config = Config::load(None, environment).map_err(|error| error.to_string())?;
    let app = App::new(config, Clock::System)?;
    app.boot_until_ready().await?;
    let mut steps = STEPS.map(|(label, _)| (label, Vec::new()));
    for _ in 0..rounds {
        app.feed.catch_up().await.map_err(|error| error.to_string())?;
        for ((_, found), (_, step)) in steps.iter_mut().zip(STEPS) {
            let begin = Instant::now();
            time(step, &app, &secret).await?;
            found.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(AT_ONCE));
        }
    }
    report::print(format_args!("{AT_ONCE} in a row, {rounds} rounds, one thread; medians\n"));
    for (label, found) in steps {
        report::line(&[label.to_owned(), report::shown(report::median(found), 0, " ns")]);
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Step {
    Whole,
    Checksum,
    Hash,
    Authenticate,
    Restrictions,
    MeterName,
    Rate,
}

const STEPS: [(&str, Step); 7] = [
    ("the whole decision", Step::Whole),
    ("  checksum of the key", Step::Checksum),
    ("  … and its SHA-256", Step::Hash),
    ("  … and its look-up", Step::Authenticate),
    ("  restrictions", Step::Restrictions),
    ("  name of one meter", Step::MeterName),
    ("  one rate", Step::Rate),
];

/// Runs a step this number of times. The code of each step is inlined here, so that nothing else is measured.
async fn time(step: Step, app: &App, secret: &str) -> Result<(), String> {
    let parsed = || ApiKeySecret::parse(PREFIX, black_box(secret)).ok_or("a malformed key");
    let refused = |error: tollkeeper::error::Error| error.to_string();
    let key = app.keys.authenticate(secret, app.clock.now()).await.map_err(refused)?;
    match step {
        Step::Whole => {
            for _ in 0..AT_ONCE {
                let granted = decide(&app.billing, &app.keys, question(black_box(secret))).await;
                black_box(granted.map_err(|refused| refused.error.to_string())?);
            }
        }
        Step::Checksum => {
            for _ in 0..AT_ONCE {
                black_box(parsed()?);
            }
        }
        Step::Hash => {
            for _ in 0..AT_ONCE {
                black_box(parsed()?.hash());
            }
        }
        Step::Authenticate => {
            for _ in 0..AT_ONCE {
                let known = app.keys.authenticate(black_box(secret), app.clock.now()).await;
                black_box(known.map_err(refused)?);
            }
        }
        Step::Restrictions => {
            for _ in 0..AT_ONCE {
                let key = black_box(&key);
                key.admit_address(Some(CLIENT)).map_err(refused)?;
                key.admit_permission(Permission::Chat).map_err(refused)?;
                key.admit_model(MODEL).map_err(refused)?;
                key.admit_tokens(256).map_err(refused)?;
            }
        }
        Step::MeterName => {
            for _ in 0..AT_ONCE {
                black_box(meter(key.organization_id));
            }
        }
        Step::Rate => {
            let meter = meter(key.organization_id);
            for _ in 0..AT_ONCE {
                let taken = app.keys.rates.take(black_box(meter), 1_000_000, app.clock.now()).await;
                black_box(taken.map_err(|limit| format!("{limit:?}"))?);
            }
        }
    }
    Ok(())
}

/// Returns the id of a meter that isn't used by any call.
fn meter(organization_id: OrganizationId) -> u128 {
    key_for("bench", Subject::Within(organization_id.as_u128(), MODEL))
}

fn question(credential: &str) -> CallRequest<'_> {
    CallRequest {
        credential: Credential::Bearer(credential),
        client_address: Some(CLIENT),
        operation: Permission::Chat,
        model: Some(MODEL),
        max_tokens: Some(256),
        can_lower_max_tokens: false,
        organization: None,
        project: None,
        estimated_prompt_tokens: Some(120),
        choices: 1,
        inputs: 1,
        searches: 0,
        seconds: 0,
        request_id: None,
        lifetime: Lifetime::Reported,
        reserve: false,
        logged: None,
    }
}
