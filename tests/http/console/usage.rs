//! Pages of usage: chart, table, file and API have the same figures, to the last digit.

mod figures;
mod story;

use serde_json::Value;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::console::Browser;
use support::on_each_database;
use support::world::World;

use figures::{of_api, of_chart, of_csv, of_table};
use story::{LAB, Story, many_rows};

/// Returns sorted figures, each with its period and group, and without trailing zeros.
fn golden(figures: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let mut all: Vec<_> = figures.iter().map(|(a, b, c)| ((*a).into(), (*b).into(), (*c).into())).collect();
    all.sort();
    all
}

#[on_each_database]
async fn sums_are_those_of_the_contract(world: World) {
    let story = Story::write(&world).await;
    let browser = world.browser(story.ada.id).await;
    let page = browser.page(&world, &story.page()).await;
    // 0.005 + 0.000008 + 0.0000003 + 0.000025 + 0.000004
    assert!(page.contains("<dd><span title=\"0.0050373 USD\">0.005 USD</span></dd>"), "{page}");
    // 1000 + 1 + 3 + 11 + 2, and 500 + 1 + 13
    assert!(page.contains("<dd>1,017</dd>") && page.contains("<dd>514</dd>"), "{page}");
    let days = "<time datetime=\"2026-03-01\">1 Mar 2026</time> to <time datetime=\"2026-03-31\">31 Mar 2026</time>. Times";
    assert!(page.contains(days), "{page}");
    let march = golden(&[
        ("9 Mar 2026", "svc-1", "0.005008"),
        ("10 Mar 2026", "svc-embedding-1", "0.0000003"),
        ("2 Mar 2026", "svc-1-turbo", "0.000025"),
        ("2 Mar 2026", "svc-1", "0.000004"),
    ]);
    assert_eq!(of_chart(&page), march);
    assert_eq!(of_table(&page, "amount"), march);
    assert!(page.contains("<title>9 Mar 2026, svc-1: 0.005008</title>"), "{page}");
    // 0.005008 + 0.000004, with the decimal point above that of 0.0000003.
    let legend = "<span title=\"0.005012 USD\" data-blanks=\"\u{2007}\u{2007}\u{2007}\u{2007}\">0.005</span>";
    assert!(page.contains(legend), "the legend: {page}");

    let weeks = browser
        .page(&world, &format!("{}?range=90_days&by=project&period=week&show=tokens", story.page()))
        .await;
    let by_week = golden(&[
        ("Week of 9 Mar 2026", "Acme project", "1505"),
        ("Week of 2 Mar 2026", LAB, "26"),
        ("Week of 23 Feb 2026", LAB, "7"),
    ]);
    assert_eq!(of_chart(&weeks), by_week);
    assert!(
        weeks.contains(">11 Dec 2025</time> to <time datetime=\"2026-03-10\">10 Mar 2026</time>."),
        "{weeks}"
    );
    let months = browser
        .page(&world, &format!("{}?range=30_days&by=key&period=month&show=requests", story.page()))
        .await;
    let by_month = golden(&[
        ("Mar 2026", "Prod · Acme project", "3"),
        ("Mar 2026", &format!("=Prod <i> · {LAB}"), "2"),
        ("Feb 2026", &format!("=Prod <i> · {LAB}"), "1"),
    ]);
    assert_eq!(of_chart(&months), by_month);
    assert!(!months.contains("<b>") && !months.contains("<i>"), "names are text: {months}");
}

#[on_each_database]
async fn chart_table_file_and_api_agree_to_the_last_digit(world: World) {
    let story = Story::write(&world).await;
    let browser = world.browser(story.ada.id).await;
    let ranges = [
        ("range=this_month", "start_date=2026-03-01&end_date=2026-04-01"),
        ("range=last_month", "start_date=2026-02-01&end_date=2026-03-01"),
        ("range=7_days", "start_date=2026-03-04&end_date=2026-03-11"),
        ("range=30_days", "start_date=2026-02-09&end_date=2026-03-11"),
        ("range=90_days", "start_date=2025-12-11&end_date=2026-03-11"),
        (
            "range=custom&start_date=2026-02-27&end_date=2026-03-02",
            "start_date=2026-02-27&end_date=2026-03-03",
        ),
    ];
    for is_project in [false, true] {
        let path = if is_project { story.lab_page() } else { story.page() };
        let api = match is_project {
            true => format!("{}/usage", story.lab.project_path()),
            false => format!("{}/billing/usage", story.place.organization_path()),
        };
        for ((range, of_range), period) in ranges.iter().zip(["day", "week", "month", "day", "week", "month"])
        {
            for by in ["model", "project", "key"].into_iter().filter(|by| !is_project || *by != "project") {
                let groups = match (by, is_project) {
                    ("key", true) => "api_key",
                    ("key", false) => "project,api_key",
                    _ => by,
                };
                let question = format!("{api}?{of_range}&group_by={period},{groups}");
                let answer = world.get(&question).bearer(&story.ada.access_token).send().await.text;
                for show in ["amount", "tokens", "requests"] {
                    let query = format!("{range}&by={by}&period={period}&show={show}");
                    let name = |group: &Value| story.name(group, by, is_project);
                    let due = of_api(&answer, period, show, name);
                    let page = browser.page(&world, &format!("{path}?{query}")).await;
                    let what = format!("{path}?{query} on {}", world.backend);
                    assert_eq!(of_chart(&page), due, "{what}");
                    assert_eq!(of_table(&page, show), due, "{what}");
                    assert!(page.len() < 50_000, "{what}");
                    if due.is_empty() {
                        assert!(page.contains("class=\"empty\""), "{what}: {page}");
                    }
                    let link = format!("{path}/csv?{query}").replace('&', "&#38;");
                    assert!(page.contains(&format!("href=\"{link}\"")), "{link}: {page}");
                    let file = browser.get(&world, &format!("{path}/csv?{query}")).send().await;
                    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8", "{what}");
                    assert_eq!(of_csv(&file.text, period, show, by, is_project), due, "{what}");
                }
            }
        }
    }
}

#[on_each_database]
async fn search_shows_one_model_or_key_alone(world: World) {
    let story = Story::write(&world).await;
    let browser = world.browser(story.ada.id).await;
    let query = "by=model&search=%20SVC-1-Tur";
    let page = browser.page(&world, &format!("{}?{query}", story.page())).await;
    let turbo = golden(&[("2 Mar 2026", "svc-1-turbo", "0.000025")]);
    assert_eq!(of_chart(&page), turbo);
    assert_eq!(of_table(&page, "amount"), turbo);
    assert!(page.contains("<dt>Amount</dt><dd>0.000025 USD</dd>"), "{page}");
    assert!(page.contains("value=\" SVC-1-Tur\""), "{page}");
    let file = browser.get(&world, &format!("{}/csv?{query}", story.page())).send().await.text;
    assert_eq!(of_csv(&file, "day", "amount", "model", false), turbo);
    let query = "range=30_days&by=key&period=month&show=requests&search=acme";
    let page = browser.page(&world, &format!("{}?{query}", story.page())).await;
    assert_eq!(of_chart(&page), golden(&[("Mar 2026", "Prod · Acme project", "3")]));
    let nothing = browser.page(&world, &format!("{}?search=zzz", story.lab_page())).await;
    assert!(nothing.contains("Nothing matches.") && !nothing.contains("<svg"), "{nothing}");
}

#[on_each_database]
async fn pages_of_rows_add_up_to_the_file(world: World) {
    let story = Story::write(&world).await;
    many_rows(&world, &story, 3, 20).await;
    let browser = world.browser(story.ada.id).await;
    let query = "range=90_days&by=model&show=tokens";
    let mut rows = Vec::new();
    for number in 1..=4 {
        let page = browser.page(&world, &format!("{}?{query}&page={number}", story.page())).await;
        let link = format!("{}/csv?{query}\"", story.page()).replace('&', "&#38;");
        assert!(page.contains(&link), "the file isn't paged: {page}");
        rows.extend(of_table(&page, "tokens"));
    }
    rows.sort();
    let file = browser.get(&world, &format!("{}/csv?{query}", story.page())).send().await.text;
    assert_eq!(rows, of_csv(&file, "day", "tokens", "model", false));
    // 3 x 20, and five of the events.
    assert_eq!(rows.len(), 65);
    let past = browser.page(&world, &format!("{}?{query}&page=99", story.page())).await;
    assert_eq!(of_table(&past, "tokens"), []);
}

#[on_each_database]
async fn the_largest_report_fits_on_a_page(world: World) {
    let story = Story::write(&world).await;
    many_rows(&world, &story, 14, 365).await;
    let browser = world.browser(story.ada.id).await;
    let total = |page: &str| {
        let of_all: i128 = of_chart(page).iter().map(|(.., figure)| figure.parse::<i128>().unwrap()).sum();
        of_all
    };
    // 14 x 31 days: i from 0 to 433, each i + 1 prompt and 1 completion token; and the tokens of all events
    // of February and March, 1000 + 500 + 1 + 1 + 3 + 7 + 11 + 13 + 2 = 1538. 434 x 435 / 2 + 434 + 1538.
    let month = "range=custom&start_date=2026-02-08&end_date=2026-03-10&show=tokens";
    let page = browser.page(&world, &format!("{}?{month}", story.page())).await;
    assert_eq!(total(&page), 96_367);
    assert!(page.len() < 50_000, "{}", page.len());
    let year = "range=custom&start_date=2025-03-10&end_date=2026-03-10";
    for period in ["day", "week", "month"] {
        let page = browser.page(&world, &format!("{}?{year}&period={period}", story.page())).await;
        assert!(page.len() < 50_000, "{period}: {}", page.len());
        assert!(page.contains("others") || page.contains("All"), "{page}");
    }
}

#[on_each_database]
async fn mistakes_are_told_and_keep_what_was_chosen(world: World) {
    let story = Story::write(&world).await;
    let browser = world.browser(story.ada.id).await;
    let order = "The last day can&#39;t be before the first day.";
    let cases = [
        ("range=custom&start_date=2026-03-02&end_date=2026-03-01", order),
        ("range=custom&start_date=2025-01-01&end_date=2026-01-02", "At most 366 days can be shown at once."),
        ("range=custom&start_date=2026-02-30", "First day must be a date such as 2026-01-31."),
        ("range=custom&end_date=soon", "Last day must be a date such as 2026-01-31."),
        ("range=year", "Period must be one of "),
        ("by=user", "Group by must be one of "),
        ("show=money", "Show must be one of "),
        ("period=hour", "Granularity must be one of "),
    ];
    for path in [story.page(), story.lab_page()] {
        for (query, sentence) in cases {
            let answer = browser.get(&world, &format!("{path}?{query}")).send().await;
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.text.contains(sentence), "{query}: {}", answer.text);
            assert!(answer.text.contains("aria-invalid=\"true\""), "{query}: {}", answer.text);
            if query.contains("end_date=2026-03-01") {
                assert!(answer.text.contains("value=\"2026-03-02\""), "{}", answer.text);
            }
            let file = browser.get(&world, &format!("{path}/csv?{query}")).send().await;
            assert_eq!(file.status, 400, "{query}");
        }
    }
    let refused = browser.get(&world, &format!("{}?by=project", story.lab_page())).send().await;
    assert_eq!(refused.status, 400);
    // A year, and one day.
    for query in ["start_date=2025-03-10&end_date=2026-03-10", "start_date=2026-03-10&end_date=2026-03-10"] {
        browser.page(&world, &format!("{}?range=custom&{query}", story.page())).await;
    }
}

#[on_each_database]
async fn usage_is_shown_to_those_who_may_see_it(world: World) {
    let story = Story::write(&world).await;
    let (bob, eve) = (world.user("bob").await, world.user("eve").await);
    world.join_organization(&story.place, &bob, OrganizationRole::Member).await;
    world.join_project(&story.lab, &bob, ProjectRole::Viewer).await;
    let other = world.place(&eve, "Other").await;
    let status = async |browser: &Browser, path: &str| browser.get(&world, path).send().await.status;
    let bobs = world.browser(bob.id).await;
    let of_acme =
        format!("/console/organizations/{}/projects/{}/usage", story.place.organization, story.place.project);
    for suffix in ["", "/csv"] {
        assert_eq!(status(&bobs, &format!("{}{suffix}", story.page())).await, 403);
        assert_eq!(status(&bobs, &format!("{of_acme}{suffix}")).await, 403);
        assert_eq!(status(&bobs, &format!("{}{suffix}", story.lab_page())).await, 200);
    }
    let page = bobs.page(&world, &story.lab_page()).await;
    assert!(!page.contains(&format!("{}\"", story.page())), "no link to a page that isn't allowed: {page}");
    let eves = world.browser(eve.id).await;
    assert_eq!(status(&eves, &story.page()).await, 403);
    let mixed = format!("/console/organizations/{}/projects/{}/usage", other.organization, story.lab.project);
    assert_eq!(status(&eves, &mixed).await, 404);
    let empty = eves.page(&world, &format!("/console/organizations/{}/usage", other.organization)).await;
    assert!(empty.contains("No usage in this period."), "{empty}");
    assert!(!empty.contains("<svg"), "{empty}");
}
