//! Random histories of one organization's money. The books pass the audit after every step, in any order.

use tollkeeper::billing::bookkeeping::credits::NewCredit;
use tollkeeper::billing::bookkeeping::invoice_changes;
use tollkeeper::clock::{DAY_MS, HOUR_MS};
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use serde_json::json;
use support::billed::check;
use support::chance::Chance;
use support::seeds::Seeds;
use support::transcript::{Books, CATALOG};
use support::{Database, on_sqlite};

const COMPONENTS: (&str, &str) = (CATALOG.0, "tests/support/src/components.toml");

const STEPS: usize = 60;

/// The number of histories in a complete run.
const HISTORIES: u64 = 12;

#[on_sqlite]
fn books_pass_after_every_random_step(database: Database) {
    database.block_on(async {
        for &seed in &Seeds::of("billing_history", HISTORIES).seeds {
            // In half of the histories, usage has parts, and prices have components and conditions.
            let has_parts = seed.is_multiple_of(2);
            let world = database.world(&[if has_parts { COMPONENTS } else { CATALOG }]).await;
            let mut books = Books::open(&world, "2026-01-03T00:00:00Z").await;
            let mut chance = Chance::new(seed);
            for step in 0..STEPS {
                act(&mut books, &mut chance, step, has_parts).await;
                let story = books.story.clone();
                let checked = async {
                    check(&world, &books.place.organization).await;
                    let report = tollkeeper::billing::audit::check(&world.app.billing, None).await.unwrap();
                    assert!(report.is_clean(), "{:#?}", report.drifts);
                };
                let held = futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(checked)).await;
                assert!(held.is_ok(), "seed {seed}:\n{story}");
            }
        }
    });
}

async fn act(books: &mut Books<'_>, chance: &mut Chance, step: usize, has_parts: bool) {
    let clock = &books.world.clock;
    match chance.below(14) {
        0..=3 if has_parts => use_parts(books, chance).await,
        11 | 12 if has_parts => correct_parts(books, chance).await,
        0..=3 => {
            let today = clock.now().day();
            let day = today
                .plus(-(chance.below(40) as i64))
                .max(tollkeeper::clock::Day::parse("2026-01-01").unwrap());
            let model = chance.one_of(&["chat-a", "embed-e"]);
            let completion = if model == "chat-a" { chance.below(400_000) as i64 } else { 0 };
            let prompt = chance.below(2_500_000) as i64;
            books.use_on_day(day, chance.below(2), model, prompt, completion).await;
        }
        4 | 5 => {
            let ends = clock.now().plus_ms(chance.below(50) as i64 * DAY_MS + 1);
            let new = NewCredit {
                organization_id: books.organization_id(),
                amount: Nano::from_units((chance.below(900) as i128 + 1) * 10_000_000),
                reference: format!("payment {step}"),
                is_grant: chance.below(2) == 0,
                expires_at: (chance.below(2) == 0).then_some(ends),
            };
            books.add(&new).await.unwrap();
            books.write_line(&format!("a credit of {} until {:?}", new.amount, new.expires_at));
        }
        6..=8 => clock.advance_ms(chance.below(20) as i64 * DAY_MS + chance.below(24) as i64 * HOUR_MS),
        9 | 10 => books.run_scheduler().await,
        11 | 12 => {
            // Corrects a random event of any month. Half of the time, all remaining tokens of a kind are
            // taken back.
            let number = 1 + chance.below(books.event_count().max(1));
            if number > books.event_count() {
                return;
            }
            if let Some([prompt, completion]) = books.correctable_tokens(number) {
                let part = |left: i64, chance: &mut Chance| match chance.below(2) {
                    0 => left,
                    _ => chance.below(usize::try_from(left).unwrap() + 1) as i64,
                };
                let back = [part(prompt, chance), part(completion, chance)];
                if back != [0, 0] {
                    books.correct_event(number, back[0], back[1]).await;
                }
            }
        }
        _ => {
            let invoices = books.invoices().await;
            if invoices.is_empty() {
                return;
            }
            let invoice = &invoices[chance.below(invoices.len())];
            let (app, trail) = (&books.world.app, Trail::operator());
            let (what, done) = if chance.below(3) == 0 {
                ("is taken back", invoice_changes::void(&app.billing, invoice.id, &trail).await.is_ok())
            } else {
                ("is paid", invoice_changes::mark_paid(&app.billing, invoice.id, None, &trail).await.is_ok())
            };
            books.write_line(&format!("invoice {} {what}: {done}", invoice.number));
        }
    }
}

/// Reports usage of a short or long prompt at a random hour of the last weeks.
async fn use_parts(books: &mut Books<'_>, chance: &mut Chance) {
    let first = tollkeeper::clock::Time::parse("2026-01-01T00:00:00Z").unwrap();
    let back = chance.below(40) as i64 * DAY_MS + chance.below(24) as i64 * HOUR_MS;
    let time = books.world.clock.now().plus_ms(-back).max(first);
    let mut part = |most: i64| chance.below(usize::try_from(most).unwrap() + 1) as i64;
    let (prompt, completion) = (part(4_000), part(2_000));
    let cached = part(prompt);
    let parts =
        json!({"cache_write_5m": part(prompt - cached), "reasoning": part(completion), "search": part(2)});
    books.use_parts_at(&time.to_string(), "talk", [prompt, cached, completion], &parts).await;
}

/// Takes back a part of an event, or all of it.
async fn correct_parts(books: &mut Books<'_>, chance: &mut Chance) {
    let number = 1 + chance.below(books.event_count().max(1));
    if number > books.event_count() {
        return;
    }
    let Some([prompt, completion]) = books.correctable_tokens(number) else { return };
    let left = ["cache_write_5m", "reasoning", "search"].map(|part| books.left_of_part(number, part));
    let all = chance.below(2) == 0;
    let mut some =
        |left: i64| if all { left } else { chance.below(usize::try_from(left).unwrap() + 1) as i64 };
    let [written, reasoning, searches] = left.map(&mut some);
    // Only tokens of these parts are corrected, because some of the other tokens may be cached.
    let (prompt, completion) = (written.min(prompt), reasoning + some(completion - left[1]));
    if [prompt, completion, searches] != [0; 3] {
        let parts = json!({"cache_write_5m": -written, "reasoning": -reasoning, "search": -searches});
        books.correct_parts(number, [prompt, 0, completion], &parts).await;
    }
}
