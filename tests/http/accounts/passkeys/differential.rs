//! Compares this server's verdicts with those of another library (Python's `fido2`), for correct answers and
//! for answers with one bit flipped.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use http::Method;
use serde_json::{Value, json};

use super::{at, create, flip, login, login_options, options, origin, text};
use support::python;
use support::security_key::{SecurityKey, decode, encode};
use support::world::World;
use support::{Database, on_each_database};

/// An answer with at most one flipped bit, and this server's verdict.
struct Case {
    /// The field, and the number of the bit in it.
    bit: (&'static str, usize),
    challenge: Value,
    answer: Value,
    is_taken: bool,
}

/// The test makes more calls than the limits allow.
const NO_LIMITS: &[(&str, &str)] = &[("TOLLKEEPER_LIMITS__ENABLED", "false")];

#[on_each_database]
fn other_library_refuses_the_same_answers(database: Database) {
    let Some(mut command) = python::python("fido2", "fido2", "responses of authenticators, checked by fido2")
    else {
        return;
    };
    command.arg("tests/passkeys/verify.py");
    let interpreter = command.get_program().to_owned();
    database.run(NO_LIMITS, async |world| {
        let ada = world.user("ada").await;
        let keys = [Some(SecurityKey::new()), SecurityKey::rs256()].into_iter().flatten();
        for (number, mut key) in keys.enumerate() {
            // An RSA key with a flipped bit is also a valid key, so for RSA only signatures are compared.
            let (made, last) = match number {
                0 => made(&world, &ada.access_token, &mut key).await,
                _ => (Vec::new(), made_once(&world, &ada.access_token, &mut key).await),
            };
            let credential = attested(&last);
            let signed = signed(&world, &mut key).await;
            let mut cases = json!({"rp_id": "localhost", "origin": origin(&world)});
            for (name, list) in [("made", &made), ("signed", &signed)] {
                let case = |case: &Case| json!({"challenge": case.challenge, "answer": case.answer, "credential": credential});
                cases[name] = list.iter().map(case).collect();
            }
            let mut judge = python::command(interpreter.as_ref());
            judge.arg("tests/passkeys/verify.py").stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut judge = judge.spawn().unwrap();
            let mut input = judge.stdin.take().unwrap();
            let writer = std::thread::spawn(move || input.write_all(cases.to_string().as_bytes()).unwrap());
            let output = judge.wait_with_output().unwrap();
            writer.join().unwrap();
            let said: Value = serde_json::from_slice(&output.stdout).unwrap();
            if number == 0 {
                compare(&made, &said["made"], &is_open_in_a_new_passkey);
            }
            compare(&signed, &said["signed"], &|_| false);
        }
    });
}

/// Compares the verdicts of both libraries. Except where `is_open` allows it, this server must refuse every
/// flipped bit, and everything that the other library refuses.
fn compare(cases: &[Case], said: &Value, is_open: &dyn Fn(&Case) -> bool) {
    assert!(cases.len() > 2_000, "{}", cases.len());
    let said: Vec<bool> = serde_json::from_value(said.clone()).unwrap();
    let mut only_there = BTreeMap::<_, usize>::new();
    for (case, theirs) in cases.iter().zip(&said) {
        let is_flipped = case.bit.0 != "none";
        assert!(!case.is_taken || *theirs || is_open(case), "{:?} is taken here only", case.bit);
        assert!(is_flipped || case.is_taken, "the good answer");
        assert!(!is_flipped || !case.is_taken || is_open(case), "{:?} is taken", case.bit);
        if *theirs && !case.is_taken {
            *only_there.entry(case.bit.0).or_default() += 1;
        }
    }
    assert!(said[0], "the good answer");
    // The other library leaves the user handle and the credential id to its caller, ignores attestations that
    // weren't requested, and accepts any value of the unused bits at the end of a challenge.
    for what in only_there.keys() {
        assert!(
            ["userHandle", "attestationObject", "clientDataJSON"].contains(what),
            "accepted only by the other library: {only_there:?}"
        );
    }
}

/// Returns `true` for bits that can't be checked, because a new passkey without attestation has no signature:
/// the counter, the authenticator's model, the flag for backups, reserved flags, the empty attestation
/// statement, and the name of an optional member. This server's library also accepts names in CBOR as bytes
/// instead of text.
fn is_open_in_a_new_passkey(case: &Case) -> bool {
    let (name, bit) = case.bit;
    // The original bytes: the bit is flipped back.
    let bytes = flip(&decode(&case.answer["response"][name]), bit);
    let start = |part: &[u8]| bytes.windows(part.len()).position(|window| window == part).unwrap();
    let place = bit / 8;
    match name {
        "attestationObject" => {
            let data = start(&tollkeeper::kernel::secrets::sha256(b"localhost"));
            let is_flag = place == data + 32 && [1, 3, 5].contains(&(bit % 8));
            let is_head = |text: &[u8]| place + 1 == start(text) && bit % 8 == 5;
            let is_name = [b"fmt".as_slice(), b"none", b"attStmt", b"authData"].into_iter().any(is_head);
            let is_statement = place == start(b"attStmt") + 7;
            is_flag || is_name || is_statement || (data + 33..data + 53).contains(&place)
        }
        "clientDataJSON" => {
            let member = start(b"crossOrigin");
            (member..member + 11).contains(&place)
        }
        _ => false,
    }
}

/// Sends the answer for a new passkey with each bit flipped; returns the cases, and the answer that was
/// accepted in the end.
async fn made(world: &World, token: &str, key: &mut SecurityKey) -> (Vec<Case>, Value) {
    let mut cases = Vec::new();
    let mut waiting = options(world, token).await;
    let mut good = key.make(&waiting["public_key"], &origin(world));
    let bits = std::iter::once(("none", 0)).chain(bits_of(&good, &["clientDataJSON", "attestationObject"]));
    for bit in bits.collect::<Vec<_>>() {
        let answer = flipped(&good, bit);
        let challenge = waiting["public_key"]["challenge"].clone();
        let outcome = create(world, token, &waiting, &answer, "x").send().await;
        let is_taken = outcome.status == 200;
        assert!(is_taken || outcome.code() == "invalid_credential", "{bit:?}: {}", outcome.text);
        cases.push(Case { bit, challenge, answer, is_taken });
        if is_taken {
            let id = text(&outcome.json()["data"]["passkey"], "id");
            at(world, token, Method::DELETE, &id).data().await;
            waiting = options(world, token).await;
            good = key.make(&waiting["public_key"], &origin(world));
        }
    }
    let good = made_once(world, token, key).await;
    (cases, good)
}

/// Adds a passkey, and returns the answer.
async fn made_once(world: &World, token: &str, key: &mut SecurityKey) -> Value {
    let waiting = options(world, token).await;
    let good = key.make(&waiting["public_key"], &origin(world));
    create(world, token, &waiting, &good, "x").data().await;
    good
}

/// Sends the answer to a login with each bit flipped, and returns the cases.
async fn signed(world: &World, key: &mut SecurityKey) -> Vec<Case> {
    let asked = login_options(world).await;
    let good = key.sign(&asked["public_key"], &origin(world));
    let names = ["clientDataJSON", "authenticatorData", "signature", "userHandle"];
    let mut cases = Vec::new();
    for bit in bits_of(&good, &names).chain(std::iter::once(("none", 0))) {
        let answer = flipped(&good, bit);
        let outcome = login(world, &asked, &answer).send().await;
        let is_taken = outcome.status == 200;
        assert!(is_taken || outcome.code() == "invalid_credential", "{bit:?}: {}", outcome.text);
        cases.push(Case { bit, challenge: asked["public_key"]["challenge"].clone(), answer, is_taken });
    }
    // The correct answer was sent last, because it uses the ceremony up; the comparison expects it first.
    cases.rotate_right(1);
    cases
}

fn bits_of<'a>(good: &Value, names: &'a [&'static str]) -> impl Iterator<Item = (&'static str, usize)> + 'a {
    let lengths: Vec<_> = names.iter().map(|name| decode(&good["response"][*name]).len() * 8).collect();
    names.iter().zip(lengths).flat_map(|(name, bits)| (0..bits).map(move |bit| (*name, bit)))
}

fn flipped(good: &Value, (name, bit): (&str, usize)) -> Value {
    let mut answer = good.clone();
    if name != "none" {
        answer["response"][name] = encode(&flip(&decode(&good["response"][name]), bit)).into();
        // Removes the copy of these bytes, which the other library would compare.
        answer["response"].as_object_mut().unwrap().remove(if name == "attestationObject" {
            "authenticatorData"
        } else {
            "nothing"
        });
    }
    answer
}

/// Returns the attested credential data of a new passkey, which follow the signature counter.
fn attested(answer: &Value) -> String {
    encode(&decode(&answer["response"]["authenticatorData"])[37..])
}
