//! The page of the balance alert.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::tenants::roles::OrganizationRole;

use support::console::hidden;
use support::world::World;
use support::{Database, on_each_database};

#[on_each_database]
fn alert_is_set_shown_and_removed(database: Database) {
    database.run(&[], async |world: World| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let browser = world.browser(ada.id).await;
        let page = format!("/console/organizations/{}/billing/balance-alert", place.organization);
        let api = format!("{}/billing/balance-alert", place.organization_path());
        let below = async || world.get(&api).bearer(&ada.access_token).data().await["below"].clone();
        let empty = browser.page(&world, &page).await;
        assert!(empty.contains("No alert") && empty.contains("aria-current=\"page\">Alert<"), "{empty}");
        let version = hidden(&empty, "version");
        let done = browser.done(&world, &page, &[("version", &version), ("below", "12.50")]).await;
        assert_eq!(done, format!("{page}?done=balance_alert_set"));
        assert_eq!(below().await, 12.5);
        // No credit was bought, so the balance is immediately below the amount.
        let low = browser.page(&world, &page).await;
        for part in ["12.50 USD", "The balance has been below this amount since", "value=\"12.5\""] {
            assert!(low.contains(part), "{part}: {low}");
        }
        // Another change came first: both versions are shown, and nothing is lost.
        let late = browser.post(&world, &page, &[("version", &version), ("below", "3")]).send().await;
        assert_eq!(late.status, 409, "{}", late.text);
        assert!(
            late.text.contains("<td class=\"lines\">3</td><td class=\"lines\">12.5</td>"),
            "{}",
            late.text
        );
        assert_eq!(below().await, 12.5);
        let again = hidden(&late.text, "version");
        browser.done(&world, &page, &[("version", &again), ("below", "3")]).await;
        assert_eq!(below().await, 3);
        // The same form is sent twice.
        let version = hidden(&browser.page(&world, &page).await, "version");
        let fields = [("version", version.as_str()), ("below", "-4")];
        for _ in 0..2 {
            browser.done(&world, &page, &fields).await;
        }
        assert_eq!(below().await, -4);
        let version = hidden(&browser.page(&world, &page).await, "version");
        let wrong = browser.post(&world, &page, &[("version", &version), ("below", "a lot")]).send().await;
        assert_eq!(wrong.status, 400, "{}", wrong.text);
        assert!(
            wrong.text.contains("value=\"a lot\"") && wrong.text.contains("aria-invalid"),
            "{}",
            wrong.text
        );
        browser.done(&world, &page, &[("version", &version), ("below", "")]).await;
        assert_eq!(below().await, Value::Null);
    });
}

#[on_each_database]
fn admins_see_the_alert_and_members_do_not(database: Database) {
    database.run(&[], async |world: World| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let page = format!("/console/organizations/{}/billing/balance-alert", place.organization);
        let api = format!("{}/billing/balance-alert", place.organization_path());
        world.call(Method::PUT, &api).json(&json!({"below": 7})).bearer(&ada.access_token).data().await;
        for (name, role, status) in
            [("bob", OrganizationRole::Admin, 200), ("cy", OrganizationRole::Member, 403)]
        {
            let user = world.user(name).await;
            world.join_organization(&place, &user, role).await;
            let browser = world.browser(user.id).await;
            let shown = browser.get(&world, &page).send().await;
            assert_eq!((shown.status, shown.text.contains("7.00 USD")), (status, status == 200), "{name}");
            assert!(!shown.text.contains("name=\"below\""), "{name}: {}", shown.text);
            assert_eq!(browser.post(&world, &page, &[("below", "1")]).send().await.status, 403, "{name}");
        }
    });
}
