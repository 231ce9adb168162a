//! Usage of two projects, with sums that can be checked by hand.

use serde_json::{Value, json};
use tollkeeper::clock::Day;
use tollkeeper::db::sql;

use support::world::{Place, TestUser, World};

/// The usage events, with the prices of the built-in catalog: svc-1 0.000002 and 0.000006, svc-1-turbo
/// 0.0000005 and 0.0000015, svc-1-pro 0.00001 and 0.00003, svc-embedding-1 0.0000001.
const EVENTS: [(&str, usize, &str, i64, i64); 6] = [
    // 1000 x 0.000002 + 500 x 0.000006 = 0.005
    ("2026-03-09", 0, "svc-1", 1_000, 500),
    // 0.000002 + 0.000006 = 0.000008
    ("2026-03-09", 0, "svc-1", 1, 1),
    // 3 x 0.0000001 = 0.0000003
    ("2026-03-10", 0, "svc-embedding-1", 3, 0),
    // 7 x 0.00001 = 0.00007
    ("2026-02-27", 1, "svc-1-pro", 7, 0),
    // 11 x 0.0000005 + 13 x 0.0000015 = 0.000025
    ("2026-03-02", 1, "svc-1-turbo", 11, 13),
    // 2 x 0.000002 = 0.000004
    ("2026-03-02", 1, "svc-1", 2, 0),
];

/// An organization with two projects, a key in each, and the usage of [`EVENTS`].
pub struct Story {
    pub ada: TestUser,
    pub place: Place,
    pub lab: Place,
    pub keys: [String; 2],
}

impl Story {
    pub async fn write(world: &World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let project = world.project(&ada, &place.organization, "Lab <b>& \"sons\"").await;
        let lab = Place { organization: place.organization.clone(), project };
        let (one, _) = world.old_key(&ada, &place, &json!({"name": "Prod"})).await;
        let (two, _) = world.old_key(&ada, &lab, &json!({"name": "=Prod <i>"})).await;
        let keys = [one, two];
        let events = EVENTS.iter().enumerate().map(|(number, (day, key, model, prompt, completion))| {
            let kind = if model.contains("embedding") { "embeddings" } else { "chat" };
            json!({"id": format!("e{number}"), "source": "t", "time": format!("{day}T10:00:00Z"), "model": model,
                "api_key_id": keys[*key], "kind": kind, "prompt_tokens": prompt, "completion_tokens": completion})
        });
        let events: Vec<_> = events.collect();
        let answer = world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
        let accepted = answer["results"].as_array().unwrap().iter().all(|r| r["status"] == "accepted");
        assert!(accepted, "{answer}");
        Self { ada, place, lab, keys }
    }

    pub fn page(&self) -> String {
        format!("/console/organizations/{}/usage", self.place.organization)
    }

    pub fn lab_page(&self) -> String {
        format!("/console/organizations/{}/projects/{}/usage", self.place.organization, self.lab.project)
    }

    /// Returns the page's name for a group of the API's answer.
    pub fn name(&self, group: &Value, by: &str, is_project: bool) -> String {
        let project = |id: &Value| if id == self.place.project.as_str() { "Acme project" } else { LAB };
        let key = |id: &Value| if id == self.keys[0].as_str() { "Prod" } else { "=Prod <i>" };
        match by {
            "model" => group["model"].as_str().unwrap().to_owned(),
            "project" => project(&group["project_id"]).to_owned(),
            _ if is_project => key(&group["api_key_id"]).to_owned(),
            _ => format!("{} · {}", key(&group["api_key_id"]), project(&group["project_id"])),
        }
    }
}

/// The name of the second project.
pub const LAB: &str = "Lab <b>& \"sons\"";

/// Adds the usage of this many models with long names on this many days.
pub async fn many_rows(world: &World, story: &Story, models: i64, days: i64) {
    let today = Day::parse("2026-03-10").unwrap().unix_days();
    let name = "m".repeat(60);
    let text = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {models} * {days} - 1)
         INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
             requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         SELECT $1, $2, $3, '{name}' || CAST(i % {models} AS TEXT), 0, 'chat', {today} - i / {models}, 674,
             1, i + 1, 1, 1234567890123 + i, 0 FROM n"
    );
    let mut tx = world.app.db.write().await.unwrap();
    sql(text)
        .bind(story.place.organization.as_str())
        .bind(story.place.project.as_str())
        .bind(story.keys[0].as_str())
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}
