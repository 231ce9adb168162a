//! Usage reports by time, model, project and key, as JSON and as CSV.

use serde_json::{Value, json};
use tollkeeper::clock::Day;
use tollkeeper::db::{Tx, sql};

use support::on_each_database;
use support::world::{Place, TestUser, World};

/// A daily row, with values that no event can produce.
struct Daily<'a> {
    project: &'a str,
    key: &'a str,
    model: &'a str,
    kind: &'a str,
    day: &'a str,
    /// The month in which it is billed.
    month: i64,
    amount_pico: i64,
}

async fn insert(tx: &mut Tx, organization: &str, row: &Daily<'_>) {
    sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                  requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         VALUES ($1, $2, $3, $4, 0, $5, $6, $7, 1, 10, CASE WHEN $5 = 'chat' THEN 5 ELSE 0 END, CAST($8 AS BIGINT), CAST($8 AS BIGINT) / 1000)")
    .bind(organization)
    .bind(row.project)
    .bind(row.key)
    .bind(row.model)
    .bind(row.kind)
    .bind(Day::parse(row.day).unwrap())
    .bind(row.month)
    .bind(row.amount_pico)
    .execute(tx)
    .await
    .unwrap();
}

/// An organization with two projects, a key in each, and usage of one or two models on some days.
struct Scene {
    ada: TestUser,
    place: Place,
    other: Place,
    keys: [String; 2],
}

const MARCH: i64 = 674;

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    // An id of a later millisecond is sorted after the earlier ones.
    world.clock.advance_ms(1);
    let project = world.project(&ada, &place.organization, "Other").await;
    let other = Place { organization: place.organization.clone(), project };
    let (one, _) = world.key(&ada, &place, &json!({"name": "One"})).await;
    world.clock.advance_ms(1);
    let (two, _) = world.key(&ada, &other, &json!({"name": "=cmd|' /C calc'!A0, \"x\""})).await;
    let row = |project, key, model, kind, day, month| Daily {
        project,
        key,
        model,
        kind,
        day,
        month,
        amount_pico: 2_500,
    };
    let rows = [
        row(&*place.project, &*one, "svc-1", "chat", "2026-03-02", MARCH),
        row(&*place.project, &*one, "svc-1-pro", "chat", "2026-03-02", MARCH),
        // The same day, billed in two months.
        row(&*place.project, &*one, "svc-1", "chat", "2026-03-02", MARCH + 1),
        row(&*other.project, &*two, "svc-1", "chat", "2026-03-08", MARCH),
        row(&*other.project, &*two, "svc-embedding-1", "embeddings", "2026-03-09", MARCH),
        row(&*place.project, &*one, "svc-1", "chat", "2026-02-28", MARCH - 1),
    ];
    let mut tx = world.app.db.write().await.unwrap();
    for row in &rows {
        insert(&mut tx, &place.organization, row).await;
    }
    tx.commit().await.unwrap();
    Scene { ada, place, other, keys: [one, two] }
}

impl Scene {
    fn organization_usage(&self) -> String {
        format!("{}/billing/usage", self.place.organization_path())
    }

    /// Returns each row as its date and groups, with its numbers of chat and embeddings requests.
    async fn rows(&self, world: &World, path: &str) -> Vec<String> {
        let data = world.get(path).bearer(&self.ada.access_token).data().await;
        let names = [
            (&self.place.project, "P1"),
            (&self.other.project, "P2"),
            (&self.keys[0], "K1"),
            (&self.keys[1], "K2"),
        ];
        let shown = |row: &Value| {
            let mut text = row["date"].as_str().unwrap()[5..].to_owned();
            for field in ["model", "project_id", "api_key_id"] {
                if let Some(value) = row.get(field) {
                    let value = value.as_str().unwrap();
                    let name = names.iter().find(|(id, _)| *id == value).map_or(value, |(_, name)| name);
                    text.push_str(&format!(" {name}"));
                }
            }
            format!("{text} {}+{}", row["chat"]["requests"], row["embeddings"]["requests"])
        };
        let rows: Vec<_> = data["usage"].as_array().unwrap().iter().map(shown).collect();
        let counted: i64 = rows
            .iter()
            .map(|row| {
                let (chat, embeddings) = row.rsplit(' ').next().unwrap().split_once('+').unwrap();
                chat.parse::<i64>().unwrap() + embeddings.parse::<i64>().unwrap()
            })
            .sum();
        let total = &data["total"];
        let total =
            total["chat"]["requests"].as_i64().unwrap() + total["embeddings"]["requests"].as_i64().unwrap();
        assert_eq!(counted, total, "{path}");
        rows
    }
}

#[on_each_database]
async fn usage_is_grouped_by_time_model_project_and_key(world: World) {
    let scene = scene(&world).await;
    let organization = scene.organization_usage();
    let spring = "start_date=2026-02-26&end_date=2026-03-10";
    let cases: [(&str, &[&str]); 8] = [
        ("", &["02-28 1+0", "03-02 3+0", "03-08 1+0", "03-09 0+1"]),
        ("&group_by=week", &["02-23 1+0", "03-02 4+0", "03-09 0+1"]),
        ("&group_by=month", &["02-01 1+0", "03-01 4+1"]),
        ("&group_by=month,project", &["02-01 P1 1+0", "03-01 P1 3+0", "03-01 P2 1+1"]),
        ("&group_by=api_key&group_by=month", &["02-01 K1 1+0", "03-01 K1 3+0", "03-01 K2 1+1"]),
        (
            "&group_by=model",
            &[
                "02-28 svc-1 1+0",
                "03-02 svc-1 2+0",
                "03-02 svc-1-pro 1+0",
                "03-08 svc-1 1+0",
                "03-09 svc-embedding-1 0+1",
            ],
        ),
        (
            "&group_by=week,%20model",
            &["02-23 svc-1 1+0", "03-02 svc-1 3+0", "03-02 svc-1-pro 1+0", "03-09 svc-embedding-1 0+1"],
        ),
        (
            "&group_by=api_key,project,model,month",
            &[
                "02-01 svc-1 P1 K1 1+0",
                "03-01 svc-1 P1 K1 2+0",
                "03-01 svc-1 P2 K2 1+0",
                "03-01 svc-1-pro P1 K1 1+0",
                "03-01 svc-embedding-1 P2 K2 0+1",
            ],
        ),
    ];
    for (query, expected) in cases {
        assert_eq!(scene.rows(&world, &format!("{organization}?{spring}{query}")).await, expected, "{query}");
    }
    // Without bounds the range is the current month, and its rows begin with its first day.
    assert_eq!(scene.rows(&world, &format!("{organization}?group_by=month")).await, ["03-01 4+1"]);
    // The date of a weekly row is the first day of its week, even if the range begins later.
    let thursday = format!("{organization}?start_date=2026-03-05&end_date=2026-03-09&group_by=week");
    assert_eq!(scene.rows(&world, &thursday).await, ["03-02 1+0"]);

    let project = format!("{}/usage", scene.place.project_path());
    let cases: [(&str, &[&str]); 4] = [
        ("", &["02-28 K1 1+0", "03-02 K1 3+0"]),
        ("&group_by=api_key", &["02-28 K1 1+0", "03-02 K1 3+0"]),
        ("&group_by=week", &["02-23 K1 1+0", "03-02 K1 3+0"]),
        ("&group_by=model,month", &["02-01 svc-1 K1 1+0", "03-01 svc-1 K1 2+0", "03-01 svc-1-pro K1 1+0"]),
    ];
    for (query, expected) in cases {
        assert_eq!(scene.rows(&world, &format!("{project}?{spring}{query}")).await, expected, "{query}");
    }
    let body = json!({"start_date": "2026-03-01", "end_date": "2026-04-01", "group_by": ["week", "model"]});
    let call = world.get(&format!("{project}?group_by=nonsense")).json(&body).bearer(&scene.ada.access_token);
    assert_eq!(call.data().await["usage"].as_array().unwrap().len(), 2, "the body wins");
}

#[on_each_database]
async fn longest_report_by_month_has_the_days_of_each_month(world: World) {
    let scene = scene(&world).await;
    // A request on each day from the last day of 2026 to the last day of 2028, which is a leap year: day
    // 20818 is 2026-12-31.
    let mut tx = world.app.db.write().await.unwrap();
    sql("WITH RECURSIVE n(day) AS (SELECT CAST(20818 AS BIGINT) UNION ALL SELECT day + 1 FROM n WHERE day < 21549)
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                      requests, prompt_tokens, completion_tokens, amount_pico, posted_nano, additions)
             SELECT $1, $2, $3, 'm', 0, 'chat', day, 800, 1, 1, 1, 1, 0, 1 FROM n")
    .bind(scene.place.organization.as_str())
    .bind(scene.place.project.as_str())
    .bind(scene.keys[0].as_str())
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let paths = [scene.organization_usage(), format!("{}/usage", scene.place.project_path())];
    let count = async |path: &str, range: &str| {
        let path = format!("{path}?group_by=month&{range}");
        let data = world.get(&path).bearer(&scene.ada.access_token).data().await;
        let rows = data["usage"].as_array().unwrap().iter();
        let row = |row: &Value| {
            (row["date"].as_str().unwrap().to_owned(), row["chat"]["requests"].as_i64().unwrap())
        };
        rows.map(row).collect::<Vec<_>>()
    };
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let year = |year: i64, february: i64| {
        let months = lengths.into_iter().zip(1..);
        let days = move |days: i64, month: i64| if month == 2 { february } else { days };
        months.map(move |(length, month)| (format!("{year}-{month:02}-01"), days(length, month)))
    };
    for path in paths {
        // 366 days, in 13 months.
        let expected: Vec<_> = [("2026-12-01".to_owned(), 1)].into_iter().chain(year(2027, 28)).collect();
        assert_eq!(count(&path, "start_date=2026-12-31&end_date=2028-01-01").await, expected);
        assert_eq!(expected.len(), 13);
        // The whole leap year.
        let expected: Vec<_> = year(2028, 29).collect();
        assert_eq!(count(&path, "start_date=2028-01-01&end_date=2029-01-01").await, expected);
        // From the middle of a month to its middle in the next year.
        let rows = count(&path, "start_date=2027-02-15&end_date=2028-02-15").await;
        let ends = (rows.first().cloned().unwrap(), rows.last().cloned().unwrap());
        assert_eq!(ends, (("2027-02-01".to_owned(), 14), ("2028-02-01".to_owned(), 14)));
        assert_eq!((rows.len(), rows.iter().map(|(_, days)| days).sum::<i64>()), (13, 365));
    }
}

#[on_each_database]
async fn invalid_groups_are_refused_with_the_valid_ones(world: World) {
    let scene = scene(&world).await;
    let organization = scene.organization_usage();
    let project = format!("{}/usage", scene.place.project_path());
    let cases = [
        (
            &organization,
            json!({"group_by": "hour"}),
            "group_by unknown_value",
            "`day`, `week`, `month`, `model`, `project`, `api_key`",
        ),
        (&organization, json!({"group_by": ["day", "hour"]}), "group_by[1] unknown_value", "`project`"),
        (
            &organization,
            json!({"group_by": "day,week"}),
            "group_by several_periods",
            "not both `day` and `week`",
        ),
        (&organization, json!({"group_by": "model,model"}), "group_by duplicate_value", "`model` twice"),
        (&organization, json!({"group_by": ""}), "group_by unknown_value", "`day`"),
        (&organization, json!({"group_by": []}), "group_by empty", "Omit it"),
        (&organization, json!({"group_by": 1}), "group_by wrong_type", "comma-separated"),
        (&organization, json!({"group_by": [1]}), "group_by[0] wrong_type", "string"),
        (
            &project,
            json!({"group_by": "project"}),
            "group_by unknown_value",
            "`day`, `week`, `month`, `model`, `api_key`,",
        ),
        (&project, json!({"format": "xml"}), "format unknown_value", "`json`, `csv`"),
    ];
    for (path, body, detail, words) in cases {
        let answer = world.get(path).json(&body).bearer(&scene.ada.access_token).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
        assert!(answer.text.contains(words), "{body}: {}", answer.text);
    }
    // The same applies to CSV.
    let wrong = world
        .get(&format!("{project}?format=csv&group_by=project"))
        .bearer(&scene.ada.access_token)
        .send()
        .await;
    assert_eq!((wrong.status, wrong.header("content-type")), (400, "application/json"));
}

#[on_each_database]
async fn sums_beyond_64_bits_of_pico_are_exact(world: World) {
    let scene = scene(&world).await;
    let mut tx = world.app.db.write().await.unwrap();
    for (number, key) in ["key_a", "key_b", "key_c"].iter().enumerate() {
        let row = Daily {
            project: &scene.place.project,
            key,
            model: "svc-1",
            kind: "chat",
            day: "2025-12-31",
            month: MARCH,
            amount_pico: i64::MAX - number as i64,
        };
        insert(&mut tx, &scene.place.organization, &row).await;
    }
    tx.commit().await.unwrap();
    let sum = tollkeeper::money::Pico::from_units(3 * i128::from(i64::MAX) - 3).to_string();
    for group in ["day", "week", "month"] {
        let path = format!(
            "{}?start_date=2025-12-01&end_date=2026-01-01&group_by={group}",
            scene.organization_usage()
        );
        let answer = world.get(&path).bearer(&scene.ada.access_token).send().await;
        assert_eq!(answer.text.matches(&format!("\"amount\":{sum}}}")).count(), 2, "{}", answer.text);
    }
}

#[on_each_database]
async fn report_is_available_as_csv(world: World) {
    let scene = scene(&world).await;
    let get = async |path: String| world.get(&path).bearer(&scene.ada.access_token).send().await;
    let answer =
        get(format!("{}?start_date=2026-03-01&end_date=2026-03-09&format=csv", scene.organization_usage()))
            .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(answer.header("cache-control"), "private, no-store");
    let file =
        format!("attachment; filename=\"usage_{}_2026-03-01_2026-03-08.csv\"", scene.place.organization);
    assert_eq!(answer.header("content-disposition"), file);
    let numbers = "chat_requests,chat_prompt_tokens,chat_completion_tokens,chat_amount,embeddings_requests,embeddings_tokens,embeddings_amount,currency";
    let expected = format!(
        "date,{numbers}\r\n2026-03-02,3,30,15,0.0000000075,0,0,0,USD\r\n2026-03-08,1,10,5,0.0000000025,0,0,0,USD\r\n"
    );
    assert_eq!(answer.text, expected);

    let grouped = format!("{}?group_by=project,api_key,model,month&format=csv", scene.organization_usage());
    let text = get(grouped).await.text;
    let (p1, p2, k1, k2) = (&scene.place.project, &scene.other.project, &scene.keys[0], &scene.keys[1]);
    let expected = format!(
        "date,model,project_id,api_key_id,{numbers},user_id\r\n\
         2026-03-01,svc-1,{p1},{k1},2,20,10,0.000000005,0,0,0,USD,\r\n\
         2026-03-01,svc-1,{p2},{k2},1,10,5,0.0000000025,0,0,0,USD,\r\n\
         2026-03-01,svc-1-pro,{p1},{k1},1,10,5,0.0000000025,0,0,0,USD,\r\n\
         2026-03-01,svc-embedding-1,{p2},{k2},0,0,0,0,1,10,0.0000000025,USD,\r\n"
    );
    assert_eq!(text, expected);

    // A name that a spreadsheet would run as a formula.
    let body = json!({"format": "csv", "start_date": "2026-03-08", "end_date": "2026-03-09"});
    let path = format!("{}/usage", scene.other.project_path());
    let answer = world.get(&path).json(&body).bearer(&scene.ada.access_token).send().await;
    let expected = format!(
        "date,api_key_id,api_key_name,{numbers},user_id\r\n\
         2026-03-08,{k2},\"'=cmd|' /C calc'!A0, \"\"x\"\"\",1,10,5,0.0000000025,0,0,0,USD,\r\n"
    );
    assert_eq!(answer.text, expected);
    // Without usage the header row is still there.
    let body = json!({"format": "csv", "start_date": "2025-03-08", "end_date": "2025-03-08"});
    let answer = world.get(&path).json(&body).bearer(&scene.ada.access_token).send().await;
    assert_eq!(answer.text, format!("date,api_key_id,api_key_name,{numbers},user_id\r\n"));
    assert!(answer.header("content-disposition").ends_with("_2025-03-08_2025-03-08.csv\""));
}

#[on_each_database]
async fn report_with_too_many_rows_is_refused(world: World) {
    let scene = scene(&world).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                      requests, prompt_tokens, completion_tokens, amount_pico, posted_nano, additions)
             SELECT $1, 'p', CAST(i AS TEXT), 'm', 0, 'chat', 20514, 674, 1, 1, 1, 1, 0, 2 FROM n")
    .bind(scene.place.organization.as_str())
    .execute(&mut tx)
    .await
    .unwrap();
    for (grouped_by, id) in [("model", "model"), ("caller", "api_key_id")] {
        sql(format!(
            "INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests,
                     prompt_tokens, completion_tokens, amount_whole, amount_pico)
                 SELECT organization_id, project_id, '{grouped_by}', day, {id}, kind, SUM(requests), SUM(prompt_tokens),
                        SUM(completion_tokens), SUM(amount_whole), SUM(amount_pico)
                 FROM usage_daily WHERE project_id = 'p' GROUP BY organization_id, project_id, day, {id}, kind"
        ))
        .execute(&mut tx)
        .await
        .unwrap();
    }
    tx.commit().await.unwrap();
    let get = async |query: &str| {
        let path = format!("{}?{query}", scene.organization_usage());
        world.get(&path).bearer(&scene.ada.access_token).send().await
    };
    let answer = get("group_by=api_key").await;
    assert_eq!((answer.status, answer.details()), (400, vec!["group_by too_many".to_owned()]));
    assert_eq!(get("group_by=day,model").await.status, 200);
}
