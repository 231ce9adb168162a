//! Invitations that are withdrawn or sent again.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::mail::sending::send_due;
use tollkeeper::tenants::roles::OrganizationRole::{self, Admin, Member, Owner};
use tollkeeper::trail;

use super::{
    GUEST, accept_by_link, add_member, assert_page, invite, mails, new_session, organizations_after_login,
};
use support::http::Call;
use support::on_each_database;
use support::world::{Place, TestUser, World};

const DEAD: &str = "This link no longer works";
const JOINED: &str = "You’re a member";

/// Invites a guest; returns the path of the invitation.
async fn invited(world: &World, caller: &TestUser, place: &Place, body: Value) -> String {
    let data = invite(world, caller, place, &body).data().await;
    // E-mails and links of the same millisecond can't be distinguished.
    world.clock.advance_ms(1);
    format!("{}/invitations/{}", place.organization_path(), data["invitation_id"].as_str().unwrap())
}

fn withdraw(world: &World, bearer: &str, path: &str) -> Call {
    world.call(Method::DELETE, path).bearer(bearer)
}

fn resend(world: &World, bearer: &str, path: &str) -> Call {
    world.call(Method::POST, &format!("{path}/resend")).bearer(bearer)
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Returns actor and target of the entries with this action.
async fn audited(world: &World, action: &str) -> Vec<(String, String)> {
    let filter = trail::Filter { action: action.into(), limit: 9, ..Default::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    entries.into_iter().map(|entry| (entry.actor, entry.target)).collect()
}

#[on_each_database]
async fn withdrawn_invitation_is_gone(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Admin).await;
    let path = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    let token = world.mailed_token(GUEST).await;
    let late = invited(&world, &ada, &place, json!({"email": "late@example.com"})).await;
    for path in [&path, &late] {
        let data = withdraw(&world, &bob.access_token, path).data().await;
        assert_eq!(data, json!({"message": "The invitation is withdrawn. Its link no longer works."}));
    }
    send_due(&world.app.mail).await.unwrap();
    assert_eq!(mails(&world).len(), 1, "the second invitation wasn't mailed yet");
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &token).await, 400, DEAD);
    assert_eq!(organizations_after_login(&world, "guest").await, "");
    let not_found = (404, "invitation_not_found".to_owned());
    assert_eq!(withdraw(&world, &ada.access_token, &path).refused().await, not_found);
    assert_eq!(resend(&world, &ada.access_token, &path).refused().await, not_found);
    let actor = bob.id.to_string();
    let due = [&late, &path].map(|path| (actor.clone(), id(path).to_owned()));
    let mut found = audited(&world, "invitation.withdrawn").await;
    found.sort_by_key(|(_, target)| target == id(&path));
    assert_eq!(found, due);
    // The address can be invited again.
    invited(&world, &ada, &place, json!({"email": GUEST, "role": "admin"})).await;
    assert_eq!(organizations_after_login(&world, "guest").await, "Acme=admin");
}

#[on_each_database]
async fn invitation_that_is_sent_again_has_another_link_and_a_new_time(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"email": "Guest@Example.com", "role": "admin", "message": "Come!"});
    let path = invited(&world, &ada, &place, body).await;
    let first = world.mailed_token("To: Guest@Example.com").await;
    world.clock.advance_ms(6 * DAY_MS - 1);
    let bob = add_member(&world, &place, "bob", Admin).await;
    let data = resend(&world, &bob.access_token, &path).data().await;
    let due = json!({"id": id(&path), "email": "Guest@Example.com", "role": "admin", "status": "pending",
        "expires_at": "2026-03-23T12:00:00.000Z"});
    assert_eq!(data, due);
    assert_eq!(audited(&world, "invitation.resent").await, [(bob.id.to_string(), id(&path).to_owned())]);
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &first).await, 400, DEAD);
    // The e-mail still has the name and the message of the user who invited the guest.
    let second = world.mailed_token("To: Guest@Example.com").await;
    let mail = mails(&world).into_iter().find(|mail| mail.contains(&second)).unwrap();
    assert!(mail.contains("ada invited you to join Acme") && mail.contains("ada writes:"), "{mail}");
    world.clock.advance_ms(7 * DAY_MS - 1);
    assert_page(&accept_by_link(&world, &second).await, 200, JOINED);
    let bearer = new_session(&world, &ada).await;
    for call in [withdraw(&world, &bearer, &path), resend(&world, &bearer, &path)] {
        assert_eq!(call.refused().await, (409, "already_accepted".into()));
    }
}

#[on_each_database]
async fn expired_invitation_is_sent_again_or_withdrawn(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let revived = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    let first = world.mailed_token(GUEST).await;
    let dropped = invited(&world, &ada, &place, json!({"email": "b@example.com"})).await;
    let replaced = invited(&world, &ada, &place, json!({"email": "c@example.com"})).await;
    world.clock.advance_ms(7 * DAY_MS);
    let ada = TestUser { access_token: new_session(&world, &ada).await, ..ada };
    let again = invited(&world, &ada, &place, json!({"email": "c@example.com"})).await;
    let not_found = (404, "invitation_not_found".to_owned());
    assert_eq!(resend(&world, &ada.access_token, &replaced).refused().await, not_found);
    assert_eq!(withdraw(&world, &ada.access_token, &replaced).refused().await, not_found);
    withdraw(&world, &ada.access_token, &dropped).data().await;
    assert_eq!(resend(&world, &ada.access_token, &dropped).refused().await, not_found);
    assert_eq!(resend(&world, &ada.access_token, &again).data().await["status"], "pending");

    let data = resend(&world, &ada.access_token, &revived).data().await;
    assert_eq!(data["status"], "pending");
    let taken = invite(&world, &ada, &place, &json!({"email": GUEST})).refused().await;
    assert_eq!(taken, (409, "already_invited".into()));
    let second = world.mailed_token(GUEST).await;
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &first).await, 400, DEAD);
    assert_page(&accept_by_link(&world, &second).await, 200, JOINED);
}

#[on_each_database]
async fn guest_gets_one_mail_if_the_first_one_still_waits(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    resend(&world, &ada.access_token, &path).data().await;
    let token = world.mailed_token(GUEST).await;
    assert_eq!(mails(&world).len(), 1);
    world.user("guest").await;
    assert_page(&accept_by_link(&world, &token).await, 200, JOINED);
}

/// The caller's role, and the statuses for an invitation of an owner, an admin and a member.
#[rustfmt::skip]
const STATUSES: [(OrganizationRole, [u16; 3]); 3] = [
    //       owner admin member
    (Owner,  [200, 200, 200]),
    (Admin,  [403, 200, 200]),
    (Member, [403, 403, 403]),
];

#[on_each_database]
async fn caller_must_be_allowed_to_grant_the_role(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "whole"})).await;
    for (caller, due) in STATUSES {
        let user = add_member(&world, &place, caller.as_str(), caller).await;
        for (role, status) in [Owner, Admin, Member].into_iter().zip(due) {
            let email = format!("{}-{}@example.com", caller.as_str(), role.as_str());
            let body = json!({"email": email, "role": role.as_str()});
            let path = invited(&world, &ada, &place, body).await;
            for call in
                [resend(&world, &user.access_token, &path), withdraw(&world, &user.access_token, &path)]
            {
                let answer = call.send().await;
                assert_eq!(answer.status, status, "{caller:?}, {role:?}: {}", answer.text);
                assert_eq!(answer.text.contains("insufficient_role"), status == 403);
            }
        }
    }
    // A key can't make anyone an owner, but may withdraw an owner's invitation.
    let path = invited(&world, &ada, &place, json!({"email": GUEST, "role": "owner"})).await;
    let answer = resend(&world, &key, &path).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"));
    withdraw(&world, &key, &path).data().await;
    let path = invited(&world, &ada, &place, json!({"email": GUEST, "role": "admin"})).await;
    resend(&world, &key, &path).data().await;
}

#[on_each_database]
async fn unverified_caller_withdraws_and_does_not_send_again(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let eve = world.unverified_user("eve").await;
    world.join_organization(&place, &eve, Owner).await;
    let path = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    let refused = resend(&world, &eve.access_token, &path).refused().await;
    assert_eq!(refused, (403, "email_not_verified".into()));
    withdraw(&world, &eve.access_token, &path).data().await;
}

#[on_each_database]
async fn invitation_of_a_member_is_not_sent_again(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    add_member(&world, &place, "guest", Member).await;
    let refused = resend(&world, &ada.access_token, &path).refused().await;
    assert_eq!(refused, (409, "already_member".into()));
    withdraw(&world, &ada.access_token, &path).data().await;
}

#[on_each_database]
async fn unknown_invitations_are_not_found(world: World) {
    let (ada, eve) = (world.user("ada").await, world.user("eve").await);
    let (place, foreign) = (world.place(&ada, "Acme").await, world.place(&eve, "Foreign").await);
    let own = invited(&world, &ada, &place, json!({"email": GUEST})).await;
    let theirs = invited(&world, &eve, &foreign, json!({"email": GUEST})).await;
    let upper = id(&own).to_uppercase();
    for wrong in [id(&theirs), "inv_01h2xcejqtf2nbrexx3vqjhp41", "inv_x", &upper, &place.project] {
        let path = format!("{}/invitations/{wrong}", place.organization_path());
        // Callers without a role in the organization get the same answer.
        for bearer in [&ada.access_token, &eve.access_token] {
            for call in [withdraw(&world, bearer, &path), resend(&world, bearer, &path)] {
                assert_eq!(call.refused().await, (404, "invitation_not_found".into()), "{wrong}");
            }
        }
    }
    for call in [withdraw(&world, &eve.access_token, &own), resend(&world, &eve.access_token, &own)] {
        assert_eq!(call.refused().await, (403, "insufficient_role".into()));
    }
    for action in ["invitation.withdrawn", "invitation.resent"] {
        assert!(audited(&world, action).await.is_empty());
    }
}

/// Uses the link, withdraws the invitation and sends it again at the same time: the answers agree with
/// whether the guest is a member, and no valid link remains.
#[on_each_database]
async fn concurrent_changes_of_an_invitation_agree(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for round in 0..8 {
        let name = format!("guest{round}");
        let email = format!("{name}@example.com");
        let path = invited(&world, &ada, &place, json!({"email": email})).await;
        let token = world.mailed_token(&email).await;
        world.user(&name).await;
        let mut calls = vec![
            world.call(Method::POST, "/invitations/accept").form(&[("token", &token)]),
            withdraw(&world, &ada.access_token, &path),
            resend(&world, &ada.access_token, &path),
            withdraw(&world, &ada.access_token, &path),
        ];
        calls.rotate_left(round % 4);
        let mut answers = join_all(calls.into_iter().map(Call::send)).await;
        answers.rotate_right(round % 4);
        let [accepted, first, sent, second] = [0, 1, 2, 3].map(|index: usize| answers[index].status);
        let joined = organizations_after_login(&world, &name).await == "Acme=member";
        assert_eq!(joined, accepted == 200, "{answers:?}");
        let withdrawn = [first, second].iter().filter(|status| **status == 200).count();
        assert_eq!(withdrawn, usize::from(!joined), "{answers:?}");
        assert!([200, 404, 409].contains(&sent), "{answers:?}");
        let refusal = if joined { (409, "already_accepted") } else { (404, "invitation_not_found") };
        let refused = withdraw(&world, &ada.access_token, &path).refused().await;
        assert_eq!(refused, (refusal.0, refusal.1.to_owned()));
    }
}
