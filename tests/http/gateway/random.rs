//! Many simultaneous calls, whose upstreams and clients behave randomly: each call is settled exactly once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::web::reply::Body;

use super::{Scene, with_upstream};
use support::chance::{Chance, first_seed};
use support::upstream::{Received, Step, end_of_body, event, json_answer, piece, plain, stream_head};
use support::{Database, on_each_database};

const CALLS: u64 = 120;
const PROMPT_TOKENS: i64 = 5;

/// The end of an answer, after some words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Good,
    Close,
    NoLastEvent,
    ErrorEvent,
    NoJson,
    Stall,
}

/// The course of one call.
#[derive(Clone, Debug)]
struct Plan {
    is_stream: bool,
    /// The status, if it isn't 200.
    status: Option<u16>,
    words: usize,
    end: End,
    /// Pauses between words, in milliseconds.
    pause_ms: usize,
    /// The number of events after which the client disconnects; 0 is before the answer has begun.
    leaves_after: Option<usize>,
}

impl Plan {
    fn of(number: u64) -> Self {
        let mut chance = Chance::new(first_seed() * 1_000 + number);
        Self {
            is_stream: chance.below(4) > 0,
            status: (chance.below(8) == 0).then(|| chance.one_of(&[400, 429, 500, 503])),
            words: chance.below(6),
            end: chance.one_of(&[
                End::Good,
                End::Good,
                End::Close,
                End::NoLastEvent,
                End::ErrorEvent,
                End::NoJson,
                End::Stall,
            ]),
            pause_ms: chance.one_of(&[0, 0, 5, 30]),
            leaves_after: (chance.below(3) == 0).then(|| chance.below(4)),
        }
    }

    fn usage(generated: usize) -> Value {
        json!({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": generated, "total_tokens": 0})
    }

    fn script(&self) -> Vec<Step> {
        if let Some(status) = self.status {
            return json_answer(status, &json!({"error": {"message": "no"}}));
        }
        let pause = Step::Pause(Duration::from_millis(self.pause_ms as u64));
        if !self.is_stream {
            let mut steps = vec![pause; self.words];
            let choice = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
            let good = json!({"choices": [choice], "usage": Self::usage(self.words)});
            match self.end {
                End::Good | End::ErrorEvent => steps.extend(json_answer(200, &good)),
                End::NoJson => steps.extend(plain(200, "text/html", "<p>")),
                End::NoLastEvent => steps.extend(json_answer(200, &json!([]))),
                End::Close => steps.push(Step::Close),
                End::Stall => steps.push(Step::AwaitClose),
            }
            return steps;
        }
        let mut steps = vec![stream_head()];
        for generated in 1..=self.words {
            let choice = json!({"index": 0, "delta": {"content": "a"}});
            steps.extend([
                event(&json!({"choices": [choice], "usage": Self::usage(generated)})),
                pause.clone(),
            ]);
        }
        match self.end {
            End::Good => {
                let choice = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
                steps.push(event(&json!({"choices": [choice], "usage": Self::usage(self.words)})));
                steps.extend([piece("data: [DONE]\n\n"), end_of_body()]);
            }
            End::Close => steps.push(Step::Close),
            End::NoLastEvent => steps.push(end_of_body()),
            End::ErrorEvent => steps.extend([event(&json!({"error": {"message": "no"}})), end_of_body()]),
            End::NoJson => steps.extend([piece("data: no\n\n"), end_of_body()]),
            End::Stall => steps.push(Step::AwaitClose),
        }
        steps
    }
}

/// The part of a call that its client saw.
#[derive(Debug)]
struct Seen {
    call_id: Option<String>,
    text: String,
    /// `true` if the client stayed until the end.
    is_whole: bool,
}

async fn make(scene: &Scene, number: u64, plan: &Plan) -> Seen {
    let body = json!({"model": "chat-1", "stream": plan.is_stream,
        "messages": [{"role": "user", "content": number.to_string()}]});
    let request = http::Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {}", scene.key))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let asked = scene.world.public.answer(request, IpAddr::from([127, 0, 0, 1]));
    let response = if plan.leaves_after == Some(0) {
        match tokio::time::timeout(Duration::from_millis(number % 20), asked).await {
            Ok(response) => response,
            Err(_) => return Seen { call_id: None, text: String::new(), is_whole: false },
        }
    } else {
        asked.await
    };
    let header = response.headers().get("x-tollkeeper-call-id").map(|id| id.to_str().unwrap().to_owned());
    let (mut text, mut body) = (String::new(), response.into_body());
    let mut is_whole = true;
    while let Some(frame) = body.frame().await {
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        if plan.is_stream && plan.leaves_after.is_some_and(|count| text.matches("\n\n").count() >= count) {
            is_whole = false;
            break;
        }
    }
    Seen { call_id: header, text, is_whole }
}

#[on_each_database]
fn every_call_is_settled_once(database: Database) {
    with_upstream(
        database,
        "vllm",
        "between_events_ms = 300\nfirst_event_ms = 400\ntotal_ms = 800",
        async |scene| {
            scene.upstream.choose(|received: &Received| {
                let number = received.body["messages"][0]["content"].as_str().unwrap().parse().unwrap();
                Plan::of(number).script()
            });
            let plans: Vec<_> = (0..CALLS).map(|number| (number, Plan::of(number))).collect();
            let calls = plans.iter().map(|(number, plan)| make(scene, *number, plan));
            let seen: Vec<_> = stream::iter(calls).buffered(12).collect().await;
            scene.assert_settled().await;

            let text = "SELECT event_id, prompt_tokens, completion_tokens FROM usage_events WHERE source = 'gateway'";
            let mut tx = scene.world.app.db.read().await.unwrap();
            let rows: Vec<(String, i64, i64)> = sql(text).all(&mut tx).await.unwrap();
            drop(tx);
            let mut events: BTreeMap<_, _> =
                rows.into_iter().map(|(id, prompt, completion)| (id, (prompt, completion))).collect();
            let mut counts = [0; 3];
            for ((number, plan), seen) in plans.iter().zip(&seen) {
                let shown = format!("{number}: {plan:?} {seen:?}");
                let Some(id) = &seen.call_id else {
                    // The call was refused, failed, or its client left before the answer began.
                    counts[0] += 1;
                    continue;
                };
                let (prompt, completion) =
                    events.remove(id).unwrap_or_else(|| panic!("{shown}: not counted"));
                let sent = i64::try_from(plan.words).unwrap();
                if !plan.is_stream && plan.end == End::NoLastEvent {
                    // An answer that isn't an object is passed on, and its tokens are estimated.
                    assert_eq!(completion, 1, "{shown}");
                    counts[1] += 1;
                    continue;
                }
                assert_eq!(prompt, PROMPT_TOKENS, "{shown}");
                if !plan.is_stream {
                    assert_eq!(completion, sent, "{shown}");
                    counts[1] += 1;
                    continue;
                }
                let delivered = i64::try_from(seen.text.matches("\"content\":\"a\"").count()).unwrap();
                assert!((delivered..=sent).contains(&completion), "{shown}: {completion}");
                if seen.is_whole {
                    assert_eq!(completion, delivered, "{shown}");
                    assert_eq!(seen.text.ends_with("data: [DONE]\n\n"), plan.end == End::Good, "{shown}");
                    assert_eq!(seen.text.contains("upstream_cut"), plan.end != End::Good, "{shown}");
                }
                counts[2] += 1;
            }
            // The remaining events belong to calls whose clients had left before the answer began: the answer
            // was generated anyway.
            let left = plans.iter().filter(|(_, plan)| plan.leaves_after == Some(0)).count();
            assert!(events.len() <= left, "{events:?}");
            assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
        },
    );
}
