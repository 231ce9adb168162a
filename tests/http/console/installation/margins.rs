//! The page of margins.

use tollkeeper::clock::Day;
use tollkeeper::db::sql;

use super::{TOP, operator};
use support::console::assert_escaped;
use support::on_each_database;
use support::world::World;

async fn insert(world: &World, day: Day, organization: &str, names: [&str; 2], amounts: [i64; 3]) {
    let [model, upstream] = names.map(str::to_owned);
    let [requests, amount, cost] = amounts;
    let mut tx = world.app.db.write().await.unwrap();
    sql("INSERT INTO daily_costs (day, organization_id, model, upstream, requests, prompt_tokens, completion_tokens,
             amount_whole, amount_pico, cost_whole, cost_pico)
         VALUES ($1, $2, $3, $4, $5, 10, 20, 1, $6, 0, $7)")
    .bind(day)
    .bind(organization.to_owned())
    .bind(model)
    .bind(upstream)
    .bind(requests)
    .bind(amount)
    .bind(cost)
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

/// Returns the texts of the table's cells, by row.
fn cells(page: &str) -> Vec<Vec<String>> {
    let body = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let rows = body.split("</tr>").filter(|row| row.contains("<tr>"));
    let text = |cell: &str| {
        let parts = cell.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts.collect::<String>().trim().to_owned()
    };
    let cells = |row: &str| {
        row.replace("</th>", "</td>").split("</td>").map(text).filter(|text| !text.is_empty()).collect()
    };
    rows.map(cells).collect()
}

#[on_each_database]
async fn margins_are_shown_by_month(world: World) {
    let (_, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let place = world.place(&ada, "<b>Acme</b>").await;
    let page = format!("{TOP}/margins");
    let month = world.clock.now().day().month();
    let empty = browser.page(&world, &page).await;
    assert!(
        empty.contains("No call in <time datetime=\"2026-03\">Mar 2026</time> has a cost.")
            && empty.contains("<code>cost</code>"),
        "{empty}"
    );
    let first = month.first_day();
    let deleted = "org_01h2xcejqtf2nbrexx3vqjhp42";
    insert(&world, first, &place.organization, ["<i>m", "<u>up"], [1_234, 500_000_000_000, 250_000_000_000])
        .await;
    insert(&world, first.plus(1), deleted, ["m-2", "<u>up"], [1, 0, 1_200_000_000_001]).await;
    insert(&world, first.plus(-1), &place.organization, ["m-3", "up-3"], [5, 0, 0]).await;

    let by_model = browser.page(&world, &page).await;
    let all = ["All", "1,235", "2.50", "1.45", "1.05", "42%"];
    assert_escaped(&by_model, "<i>m");
    let expected = [
        ["&#60;i&#62;m", "1,234", "1.50", "0.25", "1.25", "83.33%"],
        ["m-2", "1", "1.00", "1.20", "-0.20", "-20%"],
        all,
    ];
    assert_eq!(cells(&by_model), expected);
    for exact in ["1.200000000001", "-0.200000000001", "1.450000000001", "1.049999999999"] {
        assert!(by_model.contains(&format!("<span title=\"{exact} USD\">")), "{exact}: {by_model}");
    }
    assert!(
        by_model.contains("Income (USD)") && by_model.contains("aria-current=\"page\">Margins"),
        "{by_model}"
    );

    let by_customer = browser.page(&world, &format!("{page}?by=customer&month={month}")).await;
    assert_escaped(&by_customer, "<b>Acme</b>");
    let link = format!("{TOP}/organizations/{}", place.organization);
    assert!(by_customer.contains(&link) && !by_customer.contains(&format!("{TOP}/organizations/{deleted}")));
    assert!(by_customer.contains(&format!("{deleted} (deleted)")), "{by_customer}");
    let by_upstream = browser.page(&world, &format!("{page}?by=upstream")).await;
    assert_escaped(&by_upstream, "<u>up");
    assert_eq!(cells(&by_upstream).len(), 2);
    assert_eq!(cells(&by_upstream)[1], all);

    let last_month = browser.page(&world, &format!("{page}?month={}", month.plus(-1))).await;
    assert_eq!(cells(&last_month)[0], ["m-3", "5", "1.00", "0.00", "1.00", "100%"]);
    // A month before the last two years can also be requested.
    let long_ago = browser.page(&world, &format!("{page}?month=2001-02")).await;
    assert!(long_ago.contains("<option value=\"2001-02\" selected>"), "{long_ago}");
    for wrong in ["month=soon", "month=2026-13", "by=key", "page=0"] {
        assert_eq!(browser.get(&world, &format!("{page}?{wrong}")).send().await.status, 400, "{wrong}");
    }
}
