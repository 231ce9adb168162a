//! The steps of a history, and the answers that the model expects.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::billing::budget_alerts::mail_due;
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::clock::{DAY_MS, Day, HOUR_MS, MINUTE_MS, Time};
use tollkeeper::db::sql;
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use super::model::{Budget, Key, Model, PICO_PER_NANO, Period, Reservation, Scope, Usage, price};
use support::billed::budgets_path;
use support::chance::Chance;
use support::http::{Answer, Call};
use support::world::{Place, TestUser, World, id};

/// Maximum number of budgets at a time. It is low, so that many budgets are used up.
const MAX_BUDGETS: usize = 14;

/// A running history.
pub struct History<'w> {
    world: &'w World,
    owner: TestUser,
    /// The two organizations.
    organizations: Vec<String>,
    /// The ids of all projects.
    projects: Vec<String>,
    model: Model,
    pub tally: BTreeMap<&'static str, u64>,
    chance: Chance,
    servers: Vec<(App, Dispatcher, Dispatcher)>,
    seed: u64,
    counter: u64,
    log: Vec<String>,
}

/// Returns an amount in pico in the format of the API.
fn pico_text(pico: i128) -> String {
    tollkeeper::money::Pico::from_units(pico).to_string()
}

fn nano_text(nano: i128) -> String {
    tollkeeper::money::Nano::from_units(nano).to_string()
}

/// Formats a number in plain decimals. JSON prints a small number with an exponent.
fn plain(number: &Value) -> String {
    let text = number.to_string();
    let Some((digits, exponent)) = text.split_once("e-") else { return text };
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let zeros = "0".repeat(exponent.parse::<usize>().unwrap() - 1);
    format!("{sign}0.{zeros}{}", digits.replace('.', ""))
}

impl<'w> History<'w> {
    pub async fn begin(world: &'w World, seed: u64) -> Self {
        let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        let server = |app: App| {
            let dispatcher = |listener| tollkeeper::api::routes::dispatcher(&app.api, listener);
            let (public, service) = (dispatcher(Listener::Public), dispatcher(Listener::Service));
            (app.clone(), public, service)
        };
        let owner = world.user("owner").await;
        let (mut organizations, mut projects, mut model) = (Vec::new(), Vec::new(), Model::default());
        for name in ["One", "Two"] {
            let organization = world.organization(&owner, name).await;
            for _ in 0..2 {
                let project = world.project(&owner, &organization, &format!("P{}", projects.len())).await;
                let place = Place { organization: organization.clone(), project: project.clone() };
                for key in 0..2 {
                    let body = json!({"name": format!("K{key}")});
                    let (id, secret) = world.old_key(&owner, &place, &body).await;
                    let (organization, project) = (organizations.len(), projects.len());
                    model.keys.push(Key { id, secret, organization, project });
                }
                projects.push(project);
            }
            organizations.push(organization);
        }
        Self {
            world,
            owner,
            organizations,
            projects,
            model,
            tally: BTreeMap::new(),
            chance: Chance::new(seed),
            servers: vec![server(world.app.clone()), server(other)],
            seed,
            counter: 0,
            log: Vec::new(),
        }
    }

    fn count(&mut self, what: &'static str, times: usize) {
        if times > 0 {
            *self.tally.entry(what).or_default() += times as u64;
        }
    }

    fn note(&mut self, what: String) {
        self.log.push(format!("{} {what}", self.world.clock.now()));
    }

    fn fail(&self, what: &str) -> ! {
        let log = self.log.join("\n");
        panic!("{}: seed {}: {what}\n{log}\n{:#?}", self.world.backend, self.seed, self.model.budgets)
    }

    fn assert_equal<T: PartialEq + std::fmt::Debug>(&self, what: &str, is: &T, due: &T) {
        if is != due {
            self.fail(&format!("{what} is {is:?}, the model expects {due:?}"));
        }
    }

    fn today(&self) -> Day {
        self.world.clock.now().day()
    }

    fn next_id(&mut self, prefix: &str) -> String {
        self.counter += 1;
        format!("{prefix}{}", self.counter)
    }

    /// Sends a request to the service listener of one of the servers.
    async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Answer {
        let (app, _, service) = &self.servers[self.chance.below(2)];
        let call = Call::new(service, method, path).bearer(app.api.service_token.expose());
        let answer = if body.is_null() { call.send().await } else { call.json(body).send().await };
        self.note(format!("{path} {body} -> {} {}", answer.status, answer.text));
        answer
    }

    /// Sends a request of the owner to the public listener of one of the servers.
    async fn manage(&mut self, method: Method, path: &str, body: &Value) -> Answer {
        let (_, public, _) = &self.servers[self.chance.below(2)];
        let call = Call::new(public, method.clone(), path).bearer(&self.owner.access_token);
        let answer = if body.is_null() { call.send().await } else { call.json(body).send().await };
        self.note(format!("{method} {path} {body} -> {} {}", answer.status, answer.text));
        answer
    }

    pub async fn step(&mut self) {
        match self.chance.below(24) {
            0..=6 => self.reserve().await,
            7..=10 => self.capture().await,
            11..=12 => self.report().await,
            13..=14 => self.correct().await,
            15 => self.release().await,
            16..=18 => self.create().await,
            19 => self.change().await,
            20 if self.chance.below(3) == 0 => self.delete().await,
            20 => self.fill().await,
            _ => self.wait().await,
        }
        self.check().await;
    }

    async fn reserve(&mut self) {
        let key = self.chance.below(self.model.keys.len());
        let (prompt, most) = (self.chance.below(1_500) as i64, self.chance.below(3_000) as i64);
        self.reserve_tokens(key, prompt, most).await;
    }

    async fn reserve_tokens(&mut self, key: usize, prompt: i64, most: i64) {
        let nano = (price(prompt, most) + PICO_PER_NANO - 1).div_euclid(PICO_PER_NANO);
        let question = json!({"credential": self.model.keys[key].secret, "operation": "chat", "model": "talk",
            "estimated_prompt_tokens": prompt, "max_tokens": most});
        let answer = self.ask(Method::POST, "/service/v1/authorize", &question).await.json();
        let refusing = self.model.refusing(key, nano, self.today());
        let names: Vec<_> = refusing.iter().map(|budget| format!("\"{}\"", budget.name)).collect();
        self.assert_equal("the decision", &answer["allowed"], &json!(names.is_empty()));
        if names.is_empty() {
            self.assert_equal("the amount", &plain(&answer["reservation"]["amount"]), &nano_text(nano));
            let until_ms = self.world.clock.now().unix_ms() + 10 * MINUTE_MS;
            let held = Reservation { key, nano, until_ms };
            self.model.reservations.insert(id(&answer["reservation"]), held);
            self.count("allowed", 1);
            let today = self.today();
            let is_full = |budget: &&Budget| {
                let spent = self.model.spent(budget, budget.period.start(today));
                let left = budget.limit_nano - self.model.reserved(budget);
                budget.hard && (left * PICO_PER_NANO - spent).div_euclid(PICO_PER_NANO) == 0
            };
            let full = self.model.budgets.iter().filter(is_full).count();
            self.count("full to the last nano", full);
        } else {
            self.assert_equal("the code", &answer["code"], &json!("budget_exceeded"));
            let message = answer["message"].as_str().unwrap_or_default();
            if !names.iter().any(|name| message.contains(name.as_str())) {
                self.fail(&format!("{message} names none of {names:?}"));
            }
            self.count("refused", 1);
            self.count("refused by several", names.len() - 1);
        }
    }

    /// Reserves exactly the rest of a hard budget, and then one token more.
    async fn fill(&mut self) {
        let hard: Vec<_> = self.model.budgets.iter().filter(|budget| budget.hard).cloned().collect();
        if hard.is_empty() {
            return;
        }
        let budget = &hard[self.chance.below(hard.len())];
        let covered: Vec<usize> =
            (0..self.model.keys.len()).filter(|key| self.model.covers(budget, *key)).collect();
        let key = covered[self.chance.below(covered.len())];
        let spent = self.model.spent(budget, budget.period.start(self.today()));
        let left = (budget.limit_nano - self.model.reserved(budget)) * PICO_PER_NANO - spent;
        let tokens = i64::try_from(left.max(0) / price(1, 0)).unwrap().min(4_000);
        self.reserve_tokens(key, tokens, 0).await;
        self.reserve_tokens(key, tokens + 1, 0).await;
    }

    async fn send(&mut self, usage: Usage, time: Time, reservation: Option<&str>) {
        let mut event = json!({"id": usage.id, "source": "tests", "time": time.to_string(),
            "api_key_id": self.model.keys[usage.key].id, "model": "talk", "kind": "chat",
            "prompt_tokens": usage.prompt, "completion_tokens": usage.completion});
        if let Some(reservation) = reservation {
            event["reservation_id"] = json!(reservation);
        }
        if let Some(corrects) = &usage.corrects {
            event["corrects"] = json!(corrects);
        }
        let answer = self.ask(Method::POST, "/service/v1/usage", &json!({ "events": [event] })).await;
        self.assert_equal("the event", &answer.json()["results"][0]["status"], &json!("accepted"));
        self.model.usage.push(usage);
        let reached = self.model.reach(self.today());
        self.count("threshold", reached);
    }

    async fn capture(&mut self) {
        let held: Vec<_> =
            self.model.reservations.iter().map(|(id, held)| (id.clone(), held.clone())).collect();
        if held.is_empty() {
            return;
        }
        let (reservation, of) = held[self.chance.below(held.len())].clone();
        let (prompt, completion) = (self.chance.below(1_500) as i64, self.chance.below(3_000) as i64);
        let id = self.next_id("e");
        let day = self.today();
        let usage = Usage { id, key: of.key, day, prompt, completion, corrects: None };
        self.model.reservations.remove(&reservation);
        self.count("captured for more", usize::from(price(prompt, completion) > of.nano * PICO_PER_NANO));
        self.send(usage, self.world.clock.now(), Some(&reservation)).await;
    }

    /// Reports usage without a reservation, sometimes on an earlier day.
    async fn report(&mut self) {
        let back_ms = match self.chance.below(4) {
            0 => self.chance.below(45) as i64 * DAY_MS,
            1 => self.chance.below(30) as i64 * HOUR_MS,
            _ => 0,
        };
        let time = self.world.clock.now().plus_ms(-back_ms);
        let key = self.chance.below(self.model.keys.len());
        let (prompt, completion) = (self.chance.below(1_500) as i64, self.chance.below(1_500) as i64);
        let id = self.next_id("e");
        let usage = Usage { id, key, day: time.day(), prompt, completion, corrects: None };
        let today = self.today();
        let is_earlier = |budget: &&Budget| {
            self.model.covers(budget, key) && budget.period.start(time.day()) != budget.period.start(today)
        };
        let earlier = self.model.budgets.iter().filter(is_earlier).count();
        self.count("late in an earlier period", earlier);
        self.send(usage, time, None).await;
    }

    async fn correct(&mut self) {
        let usage: Vec<_> =
            self.model.usage.iter().filter(|usage| usage.corrects.is_none()).cloned().collect();
        if usage.is_empty() {
            return;
        }
        let of = usage[self.chance.below(usage.len())].clone();
        let left = self.model.left(&of.id);
        let part =
            |chance: &mut Chance, left: i64| -(chance.below(usize::try_from(left).unwrap() + 1) as i64);
        let (prompt, completion) = (part(&mut self.chance, left.0), part(&mut self.chance, left.1));
        if (prompt, completion) == (0, 0) {
            return;
        }
        let is_closed = of.day.month() < self.today().month().plus(-1);
        self.count("credit note", usize::from(is_closed));
        let id = self.next_id("c");
        let correction = Usage { id, prompt, completion, corrects: Some(of.id.clone()), ..of };
        self.send(correction, self.world.clock.now(), None).await;
    }

    async fn release(&mut self) {
        let Some(reservation) = self.model.reservations.keys().next().cloned() else { return };
        let path = format!("/service/v1/reservations/{reservation}");
        let answer = self.ask(Method::DELETE, &path, &Value::Null).await;
        self.assert_equal("the release", &answer.status, &200);
        self.model.reservations.remove(&reservation);
    }

    async fn create(&mut self) {
        if self.model.budgets.len() >= MAX_BUDGETS {
            return;
        }
        let key = self.chance.below(self.model.keys.len());
        let Key { id: key_id, organization, project, .. } = self.model.keys[key].clone();
        let (scope, word) = match self.chance.below(3) {
            0 => (Scope::Organization, "organization"),
            1 => (Scope::Project(project), "project"),
            _ => (Scope::Key(key), "api_key"),
        };
        let period = self.chance.one_of(&[Period::Day, Period::Month, Period::Total]);
        let limit_nano = self.limit();
        let hard = self.chance.below(4) > 0;
        let thresholds = match self.chance.below(3) {
            0 => vec![],
            1 => vec![50, 80, 100],
            _ => vec![1, 33, 100, 250],
        };
        let name = self.next_id("B");
        let mut body = json!({"name": name, "scope": word, "period": period.word(), "limit": nano_text(limit_nano),
            "hard": hard, "thresholds": thresholds});
        match scope {
            Scope::Organization => {}
            Scope::Project(place) => body["project_id"] = json!(self.projects[place]),
            Scope::Key(_) => body["api_key_id"] = json!(key_id),
        }
        let path = budgets_path(&self.organizations[organization]);
        let answer = self.manage(Method::POST, &path, &body).await;
        self.assert_equal("the status", &answer.status, &200);
        let id = id(&answer.json()["data"]);
        let (first_period, reached) = (period.start(self.today()), BTreeSet::new());
        self.model.budgets.push(Budget {
            id,
            name,
            organization,
            scope,
            period,
            limit_nano,
            hard,
            thresholds,
            first_period,
            reached,
        });
        let reached = self.model.reach(self.today());
        self.count("threshold by a change", reached);
    }

    /// Returns a limit that is enough for a few calls, in nano.
    fn limit(&mut self) -> i128 {
        let most = self.chance.one_of(&[20_000_000, 100_000_000, 400_000_000]);
        1 + self.chance.below(most) as i128
    }

    /// Returns the path of a budget, by its index.
    fn path_of(&self, place: usize) -> String {
        let budget = &self.model.budgets[place];
        format!("{}/{}", budgets_path(&self.organizations[budget.organization]), budget.id)
    }

    async fn change(&mut self) {
        if self.model.budgets.is_empty() {
            return;
        }
        let place = self.chance.below(self.model.budgets.len());
        let body = if self.chance.below(3) == 0 {
            let hard = !self.model.budgets[place].hard;
            self.model.budgets[place].hard = hard;
            json!({ "hard": hard })
        } else {
            let limit_nano = self.limit();
            self.model.budgets[place].limit_nano = limit_nano;
            json!({"limit": nano_text(limit_nano)})
        };
        let path = self.path_of(place);
        let answer = self.manage(Method::PUT, &path, &body).await;
        self.assert_equal("the status", &answer.status, &200);
        let reached = self.model.reach(self.today());
        self.count("threshold by a change", reached);
    }

    async fn delete(&mut self) {
        if self.model.budgets.is_empty() {
            return;
        }
        let place = self.chance.below(self.model.budgets.len());
        let path = self.path_of(place);
        let answer = self.manage(Method::DELETE, &path, &Value::Null).await;
        self.assert_equal("the status", &answer.status, &200);
        let gone = self.model.budgets.remove(place);
        self.model.untold.retain(|(id, _)| *id != gone.id);
    }

    /// Advances the clock, and runs the jobs.
    async fn wait(&mut self) {
        let ms = self.chance.one_of(&[MINUTE_MS, 11 * MINUTE_MS, 7 * HOUR_MS, DAY_MS, 17 * DAY_MS]);
        self.world.clock.advance_ms(ms);
        self.note(format!("waited {ms} ms"));
        self.owner = self.world.session(self.owner.id).await;
        let now = self.world.clock.now();
        let billing = self.servers[self.chance.below(2)].0.billing.clone();
        let expired = self.model.expire(now);
        self.count("expired", expired);
        self.assert_equal("what expires", &expire_due(&billing).await.unwrap(), &(expired as u64));
        if self.chance.below(2) == 0 {
            let closed = closing::close_due(&billing, now, &Trail::system(), None).await.unwrap();
            assert!(closed.failed.is_empty(), "{:?}", closed.failed);
        }
        self.tell().await;
    }

    /// Checks that each budget and period with new thresholds gets one e-mail.
    async fn tell(&mut self) {
        let outbox = &self.world.app.mail.outbox;
        let [one, other] = [0, 1].map(|server| mail_due(&self.servers[server].0.billing, outbox));
        let (one, other) = tokio::join!(one, other);
        let told = one.unwrap() + other.unwrap();
        self.assert_equal("the number of alerts in e-mails", &told, &(self.model.untold.len() as u64));
        self.model.untold.clear();
    }

    /// Checks the figures of every budget, and the recorded thresholds.
    async fn check(&mut self) {
        let today = self.today();
        for organization in 0..self.organizations.len() {
            let path = format!("{}?page_size=100", budgets_path(&self.organizations[organization]));
            let answer = self.manage(Method::GET, &path, &Value::Null).await;
            self.log.pop();
            let budgets = answer.json()["data"]["budgets"].as_array().cloned().unwrap_or_default();
            let said: BTreeMap<String, [String; 3]> = budgets
                .iter()
                .map(|budget| (id(budget), ["spent", "reserved", "left"].map(|name| plain(&budget[name]))))
                .collect();
            let of = self.model.budgets.iter().filter(|budget| budget.organization == organization);
            let due = of.map(|budget| {
                let spent = self.model.spent(budget, budget.period.start(today));
                let reserved = self.model.reserved(budget);
                let left = (budget.limit_nano - reserved) * PICO_PER_NANO - spent;
                (budget.id.clone(), [pico_text(spent), nano_text(reserved), pico_text(left)])
            });
            self.assert_equal("a budget", &said, &due.collect());
        }
        let mut tx = self.world.app.db.read().await.unwrap();
        let recorded: Vec<(String, Day, i64)> =
            sql("SELECT budget_id, period_start, threshold FROM budget_alerts").all(&mut tx).await.unwrap();
        let recorded: BTreeSet<_> = recorded.into_iter().collect();
        let due = self.model.budgets.iter().flat_map(|budget| {
            budget.reached.iter().map(|(period, percent)| (budget.id.clone(), *period, *percent))
        });
        self.assert_equal("the thresholds", &recorded, &due.collect());
    }

    /// Checks the stored amounts of all periods, and the books.
    pub async fn finish(&mut self) {
        self.tell().await;
        let mut tx = self.world.app.db.read().await.unwrap();
        let uses: Vec<(String, Day, i64, i64)> =
            sql("SELECT budget_id, period_start, spent_whole, spent_pico FROM budget_uses")
                .all(&mut tx)
                .await
                .unwrap();
        let mut stored: BTreeMap<(String, Day), i128> = BTreeMap::new();
        for (id, period, whole, pico) in uses {
            stored.insert((id, period), i128::from(whole) * 1_000_000_000_000 + i128::from(pico));
        }
        let mut due: BTreeMap<(String, Day), i128> = BTreeMap::new();
        for budget in &self.model.budgets {
            let days = self.model.usage.iter().filter(|usage| self.model.covers(budget, usage.key));
            let periods: BTreeSet<Day> = days.map(|usage| budget.period.start(usage.day)).collect();
            for period in periods.into_iter().filter(|period| *period >= budget.first_period) {
                due.insert((budget.id.clone(), period), self.model.spent(budget, period));
            }
        }
        stored.retain(|_, spent| *spent != 0);
        due.retain(|_, spent| *spent != 0);
        self.assert_equal("the stored uses", &stored, &due);
        let report = tollkeeper::billing::audit::check(&self.world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.drifts);
    }
}
