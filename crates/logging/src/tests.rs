//! Tests of the log: its lines, the times at which they are written, and a blocked stderr.

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};

use super::settings::{Format, Settings};
use super::*;
use kernel::clock::Time;
use kernel::ids::RequestId;

/// A stderr that a test can read. With a gate, each write first waits for a ticket.
#[derive(Clone, Default)]
struct FakeStderr {
    written: Arc<Mutex<Vec<u8>>>,
    gate: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
}

impl FakeStderr {
    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }
}

impl Write for FakeStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(gate) = &self.gate {
            gate.lock().unwrap().recv().map_err(std::io::Error::other)?;
        }
        self.written.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(format: Format, level: &str, write: impl FnOnce()) -> String {
    let stderr = FakeStderr::default();
    let (lines, guard) = Lines::start(stderr.clone(), format);
    let settings = Settings { format, level: level.to_owned(), access: true };
    tracing::subscriber::with_default(subscriber(&settings, lines), write);
    drop(guard);
    stderr.text()
}

#[test]
fn text_format_writes_fields() {
    let text = logged(Format::Text, "info", || {
        tracing::info!(route = "/v1/models", status = 200, "served");
        tracing::debug!("unseen");
    });
    let (time, rest) = text.split_once(' ').unwrap();
    assert_eq!(Time::parse(time).unwrap().to_string(), time);
    assert_eq!(rest.trim_start(), "INFO logging::tests: served route=\"/v1/models\" status=200\n");
}

#[test]
fn json_format_writes_one_object_a_line() {
    let text = logged(Format::Json, "logging=debug,off", || {
        tracing::debug!(status = 200, "two\nlines");
        tracing::info!(target: "elsewhere", "unseen");
    });
    assert_eq!(text.lines().count(), 1);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["message"], "two\nlines");
    assert_eq!((&line["level"], &line["status"]), (&"DEBUG".into(), &200.into()));
    assert!(Time::parse(line["timestamp"].as_str().unwrap()).is_some());
}

#[test]
fn library_that_logs_every_bad_answer_is_quiet_unless_it_is_asked_for() {
    let write = || {
        tracing::error!(target: "webauthn_rs_core::internals", "unseen");
        tracing::error!(target: "accounts::passkeys", "seen");
    };
    let lines = |level: &str| logged(Format::Text, level, write).lines().count();
    assert_eq!((lines("info"), lines("webauthn_rs_core=error,info")), (1, 2));
}

#[test]
fn logged_text_can_not_forge_a_line() {
    let text = logged(Format::Text, "info", || {
        let name = "x\n2026-01-01T00:00:00.000Z ERROR forged\u{1b}[31m";
        tracing::info!("renamed to {name}");
    });
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().nth(1).unwrap().starts_with("    2026"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn lines_are_written_before_the_end() {
    let stderr = FakeStderr::default();
    let (mut lines, _guard) = Lines::start(stderr.clone(), Format::Text);
    for line in ["one\n", "another\n"] {
        lines.write_all(line.as_bytes()).unwrap();
        for _ in 0..500 {
            if stderr.text().ends_with(line) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(stderr.text().ends_with(line), "{line}");
    }
    assert_eq!(lines.load(), (0, 0));
}

#[test]
fn blocked_stderr_drops_lines_but_never_blocks() {
    const ALL: usize = 40_000;
    for format in [Format::Text, Format::Json] {
        let (ticket, gate) = mpsc::channel();
        let stderr = FakeStderr { gate: Some(Arc::new(Mutex::new(gate))), ..FakeStderr::default() };
        let (mut lines, guard) = Lines::start(stderr.clone(), format);
        let line = [b'x'; 255].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        for _ in 0..ALL {
            lines.write_all(&line).unwrap();
        }
        let (waiting, dropped) = lines.load();
        assert!(waiting >= lines::MAX_WAITING && dropped > ALL / 3, "{waiting} {dropped}");
        for _ in 0..1_000 {
            ticket.send(()).unwrap();
        }
        drop(guard);
        assert_eq!(lines.load(), (0, dropped));
        let text = stderr.text();
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        let reports: Vec<&str> = text.lines().filter(|line| !line.starts_with('x')).collect();
        assert_eq!(kept, ALL - dropped);
        assert!(kept < lines::MAX_WAITING + 1_000, "{kept}");
        assert_eq!(reports.len(), 1);
        assert!(reports[0].contains(&dropped.to_string()), "{} {dropped}", reports[0]);
        if format == Format::Json {
            assert!(serde_json::from_str::<serde_json::Value>(reports[0]).is_ok());
        }
    }
}

#[test]
fn end_does_not_wait_for_a_blocked_stderr() {
    let (_ticket, gate) = mpsc::channel();
    let stderr = FakeStderr { gate: Some(Arc::new(Mutex::new(gate))), ..FakeStderr::default() };
    let (mut lines, guard) = Lines::start(stderr, Format::Text);
    lines.write_all(b"never written\n").unwrap();
    drop(guard);
}

#[test]
fn panic_messages_are_logged() {
    assert_eq!(payload_text(&"said"), "said");
    assert_eq!(payload_text(&"said".to_owned()), "said");
    assert_eq!(payload_text(&7_u8), "(no text)");
}

#[test]
fn access_line_equals_the_formatted_event() {
    for format in [Format::Text, Format::Json] {
        for address in [Some("203.0.113.7"), Some("2001:db8::7"), None] {
            let line = Access {
                method: "GET",
                route: "/v1/organizations/{organization_id}",
                status: 403,
                code: "insufficient_role",
                who: "user_01h455vb4pex5vsknk084sn02q",
                address: address.map(|text| text.parse().unwrap()),
                duration_us: 1234,
                request_id: RequestId::parse("req_01h455vb4pex5vsknk084sn02q").unwrap(),
            };
            let formatted = logged(format, "info", || line.trace());
            let stderr = FakeStderr::default();
            let (lines, guard) = Lines::start(stderr.clone(), format);
            let time = formatted.split(['"', ' ']).find_map(Time::parse).unwrap();
            line.write_to(lines, time);
            drop(guard);
            assert_eq!(stderr.text(), formatted);
        }
    }
}

#[test]
fn request_id_is_logged_once() {
    use futures_util::FutureExt;

    let id = RequestId::from_parts(Time::from_unix_ms(0), 7);
    let work = || {
        let lines = Box::pin(async move {
            tracing::info!(mails = 1, "inside");
            tracing::info!(request_id = "its own", "named");
        });
        telemetry::InRequest::new(Some(id), None, lines).now_or_never().unwrap();
        tracing::info!("outside");
    };
    let text = logged(Format::Text, "info", work);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with(&format!(": inside mails=1 request_id={id}")), "{text}");
    assert!(lines[1].ends_with(": named request_id=\"its own\""), "{text}");
    assert!(lines[2].ends_with(": outside"), "{text}");
    let json = logged(Format::Json, "info", work);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["request_id"], &lines[0]["mails"]), (&id.to_string().into(), &1.into()));
    assert_eq!(lines[1]["request_id"], "its own");
    assert!(lines[2].get("request_id").is_none(), "{json}");
}
