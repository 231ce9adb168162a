//! E-mails about thresholds that were reached.

use support::on_each_database;
use support::world::World;
use tollkeeper::billing::budget_alerts::mail_due;
use tollkeeper::mail::sending::send_due;
use tollkeeper::tenants::roles::OrganizationRole;

use super::*;

/// Sends all queued e-mails. Returns the recipient and the text of those whose subject contains these words,
/// ordered by recipient.
pub async fn mails(world: &World, subject: &str) -> Vec<(String, String)> {
    send_due(&world.app.mail).await.unwrap();
    let Ok(folder) = std::fs::read_dir(world.data_dir.join("mail")) else { return Vec::new() };
    let texts = folder.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let of = |text: String| {
        let line = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
        };
        let (to, found) = (line("To:")?, line("Subject:")?);
        found.contains(subject).then_some((to, text))
    };
    let mut found: Vec<_> = texts.filter_map(of).collect();
    found.sort();
    found
}

#[on_each_database]
async fn owners_and_admins_are_told_once_what_is_used_and_left(world: World) {
    let scene = Scene::new(&world).await;
    for (name, role) in [("bob", OrganizationRole::Admin), ("cy", OrganizationRole::Member)] {
        let user = world.user(name).await;
        world.join_organization(&scene.place, &user, role).await;
    }
    let unverified = world.unverified_user("dan").await;
    world.join_organization(&scene.place, &unverified, OrganizationRole::Owner).await;
    scene.budget("organization", "day", "0.001", true).await;
    let (billing, outbox) = (&world.app.billing, &world.app.mail.outbox);
    scene.report("1", 0, [249, 0], &[]).await;
    assert_eq!(mail_due(billing, outbox).await.unwrap(), 0);
    // 50% and 80% are reached together: 410 x 0.000002 = 0.00082.
    scene.report("2", 0, [161, 0], &[]).await;
    // Two replicas check at the same time.
    let told = tokio::join!(mail_due(billing, outbox), mail_due(billing, outbox));
    assert_eq!(told.0.unwrap() + told.1.unwrap(), 1);
    let sent = mails(&world, "Budget organization day: 80% used").await;
    let to: Vec<_> = sent.iter().map(|(to, _)| to.as_str()).collect();
    assert_eq!(to.len(), 2, "{to:?}");
    assert!(to[0].contains("ada@example.com") && to[1].contains("bob@example.com"), "{to:?}");
    for (_, mail) in &sent {
        for part in ["0.0009 USD of 0.001,", "0.0001 USD left", "(2026-03-10)", "Acme", "are refused"] {
            assert!(mail.contains(part), "{part}: {mail}");
        }
    }
    assert!(mails(&world, "50% of").await.is_empty());
    assert_eq!(mail_due(billing, outbox).await.unwrap(), 0);
    scene.report("3", 0, [500, 0], &[]).await;
    assert_eq!(mail_due(billing, outbox).await.unwrap(), 1);
    let sent = mails(&world, "Budget organization day: 100% used").await;
    assert_eq!(sent.len(), 2);
    assert!(
        sent[0].1.contains("0.0019 USD of 0.001,") && sent[0].1.contains(" 0.00 USD left"),
        "{}",
        sent[0].1
    );
}

#[on_each_database]
async fn next_period_tells_again(world: World) {
    let scene = Scene::new(&world).await;
    let body = json!({"name": "One", "scope": "api_key", "api_key_id": scene.keys[0].0, "period": "day",
        "limit": "0.0005", "thresholds": [100]});
    scene.create(&body).await;
    let (billing, outbox) = (&world.app.billing, &world.app.mail.outbox);
    for day in 0..3 {
        // The other key has no budget.
        scene.report(&format!("o{day}"), 1, CALL, &[]).await;
        assert_eq!(mail_due(billing, outbox).await.unwrap(), 0, "{day}");
        scene.report(&format!("a{day}"), 0, CALL, &[]).await;
        assert_eq!(mail_due(billing, outbox).await.unwrap(), 1, "{day}");
        scene.report(&format!("b{day}"), 0, CALL, &[]).await;
        assert_eq!(mail_due(billing, outbox).await.unwrap(), 0, "{day}");
        world.clock.advance_ms(DAY_MS);
    }
    assert_eq!(mails(&world, "Budget One: 100% used").await.len(), 3);
}
