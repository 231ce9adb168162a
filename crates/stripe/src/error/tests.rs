//! Errors in Stripe's format.

use super::*;

fn read_text(status: u16, body: &str) -> Error {
    read(status, body.as_bytes(), Some("req_1".to_owned()), None, "sk_test_abcdefgh")
}

#[test]
fn declined_card_has_its_reasons() {
    let body = r#"{"error": {"advice_code": "do_not_try_again", "charge": "ch_1", "code": "card_declined",
        "decline_code": "stolen_card", "doc_url": "https://stripe.com/docs/error-codes/card-declined",
        "message": "Your card was declined.", "network_decline_code": "43",
        "payment_intent": {"id": "pi_1", "object": "payment_intent", "status": "requires_payment_method"},
        "payment_method": {"id": "pm_1"}, "type": "card_error"}}"#;
    let error = read_text(402, body);
    let expected = Refusal {
        status: 402,
        kind: "card_error".into(),
        code: Some("card_declined".into()),
        decline_code: Some("stolen_card".into()),
        advice_code: Some("do_not_try_again".into()),
        param: None,
        message: "Your card was declined.".into(),
        payment_intent: Some("pi_1".into()),
        charge: Some("ch_1".into()),
        request_id: Some("req_1".into()),
    };
    let text = "Stripe refuses: 402 card_error card_declined stolen_card do_not_try_again: Your card was declined. \
        (request req_1)";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.refusal(), Some(&expected));
    assert!(!error.is_open() && !error.is_missing());
    assert_eq!(error, Error::Refused(Box::new(expected)));
}

#[test]
fn statuses_say_what_is_known() {
    let refusal = r#"{"error": {"type": "invalid_request_error", "message": "No."}}"#;
    for status in [400, 402, 404, 405, 413] {
        let error = read_text(status, refusal);
        assert!(matches!(&error, Error::Refused(refusal) if refusal.status == status), "{status}");
        assert_eq!((error.is_open(), error.is_missing()), (false, status == 404), "{status}");
    }
    for status in [401, 403] {
        assert!(matches!(read_text(status, refusal), Error::Misconfigured(_)), "{status}");
    }
    for status in [408, 409, 424, 425, 429, 500, 502, 503, 504, 529, 599] {
        for body in [refusal, "<html>", ""] {
            let expected = Error::Unknown {
                reason: Reason::Status(status),
                should_retry: None,
                request_id: Some("req_1".into()),
            };
            let error = read_text(status, body);
            assert!(error.is_open());
            assert_eq!(error, expected, "{status} {body}");
        }
    }
    for (status, body) in [(400, "<html>"), (404, ""), (302, "{}"), (401, "[]"), (402, r#"{"error": "no"}"#)]
    {
        assert!(matches!(read_text(status, body), Error::Unreadable { .. }), "{status} {body}");
    }
    assert!(!Error::unknown(Reason::NotConnected).is_open());
    assert!(Error::missing().is_missing());
}

#[test]
fn messages_show_no_key() {
    for message in [
        "Invalid API Key provided: sk_test_abcdefgh",
        "Invalid API Key provided: sk_test_****efgh",
        "The key rk_live_x can't do it",
        "A secret: whsec_abc",
    ] {
        let body = serde_json::json!({"error": {"type": "invalid_request_error", "message": message}});
        let error = read_text(401, &body.to_string());
        let text = format!("{error} {error:?}");
        assert!(text.contains("***"), "{text}");
        for part in ["abcdefgh", "efgh", "rk_", "whsec_"] {
            assert!(!text.contains(part), "{text}");
        }
    }
    let long = "x".repeat(5_000) + "\n";
    let body = serde_json::json!({"error": {"type": "a\nb", "code": long, "message": long}});
    let error = read_text(400, &body.to_string());
    let refusal = error.refusal().unwrap();
    assert_eq!((refusal.kind.as_str(), refusal.message.len()), ("a b", MAX_MESSAGE_CHARS));
    assert_eq!(refusal.code.as_ref().unwrap().len(), MAX_WORD_CHARS);
}
