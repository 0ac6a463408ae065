//! The operators' page in a real browser: what it shows, and what its buttons do.
#![cfg(all(unix, feature = "operator", feature = "memory", feature = "redis"))]

mod on_call;
mod picture;

use std::convert::Infallible;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::json;
use support::browser::Browser;
use support::redis::free_port;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Store;
use tower_throttle::{
    FailureMode, HOUR, Header, Key, Limit, Limiter, MINUTE, MemoryStore, Mode, OnMissingKey,
    Operator, PeerAddr, Penalty, Policy, Prefetch, RateLimitLayer, RedisStore, Route, TopDenied,
};

use support::http_store::{TestStore, Trip};

/// Markup, if it were put into the page as such.
const HOSTILE: &str = r#"<img src=x onerror="document.title=1"><b>api"#;

struct Site {
    limiter: Limiter,
    url: String,
}

impl Site {
    async fn of(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self::over(MemoryStore::new(), policies).await
    }

    async fn over(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Self {
        let operator = Operator::new();
        let limiter = Limiter::builder(store, policies)
            .observe(operator.clone())
            .build()
            .unwrap();
        let router = operator.router(limiter.clone());
        let url = support::web::serve(Router::new().nest_service("/a/limits", router)).await;
        Self {
            limiter,
            url: format!("{url}/a/limits"),
        }
    }

    /// Opens the page and waits until it has something to show.
    async fn open(&self) -> Browser {
        let browser = Browser::start().await;
        browser.open(&self.url).await;
        browser.until(SHOWS_POLICIES).await;
        browser
    }
}

const SHOWS_POLICIES: &str = "document.querySelector('#policies tr')";

fn api() -> Policy {
    Policy::new("api", Limit::gcra(100, MINUTE).burst(5)).by(Header::new("x-user"))
}

/// The rates and totals of the first policy, as shown.
const NUMBERS: &str = "[...document.querySelectorAll('#policies tr:first-child td.number .small')]\
                       .map(total => total.textContent).join(' ')";

#[tokio::test]
async fn the_page_shows_decisions_live() {
    let site = Site::of([
        api(),
        Policy::new("beta", Limit::sliding_log(1, HOUR)).mode(Mode::Shadow),
    ])
    .await;
    let browser = site.open().await;
    browser.until(&format!("{NUMBERS} === '0 0 0'")).await;
    for _ in 0..7 {
        let _ = site.limiter.check("api", "alice").await.unwrap();
    }
    for _ in 0..3 {
        let _ = site.limiter.check("beta", "alice").await.unwrap();
    }
    // Another second may have brought a permit back.
    browser
        .until(&format!("['5 2 0', '6 1 0', '7 0 0'].includes({NUMBERS})"))
        .await;
    browser
        .until("document.querySelector('[data-group=shadow] b').textContent !== '0'")
        .await;
    browser
        .until("document.querySelector('#chart path.allowed')")
        .await;
    assert_eq!(browser.text("#power").await, "Limiting");
    let row = browser.text("#policies tr:last-child").await;
    assert!(row.contains("sliding_log: 1 in any 1 h"), "{row}");
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn refusals_in_shadow_are_not_shown_as_refused() {
    let policy = api().on_missing_key(OnMissingKey::Reject);
    let site = Site::of([policy.mode(Mode::Shadow)]).await;
    let service =
        service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let limited = RateLimitLayer::new(site.limiter.clone())
        .wrap_body()
        .layer(service);
    let nobodys = async || limited.clone().oneshot(Request::new(())).await.unwrap();
    let browser = site.open().await;
    for _ in 0..5 {
        assert_eq!(nobodys().await.status(), 200);
    }
    let would_deny = "document.querySelector('[data-group=shadow] b').textContent";
    browser
        .until(&format!("!['0', '–'].includes({would_deny})"))
        .await;
    let is_hidden = "document.querySelector('[data-group=refused]').hidden";
    let hidden = browser.run(&format!("return {is_hidden}")).await;
    assert_eq!(hidden, true);

    site.limiter.set_mode("api", Mode::Enforce).unwrap();
    assert_eq!(nobodys().await.status(), 400);
    browser.until(&format!("!{is_hidden}")).await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn the_page_shows_groups_prefetch_and_when_costs_are_settled() {
    let limit = Limit::gcra(100_000, MINUTE);
    let prefetch = Prefetch::new().share(0.25);
    let policies = [
        Policy::new("hot", limit).group("client").prefetch(prefetch),
        Policy::new("cold", limit)
            .cost(5)
            .settle_at_end(|end| end.used()),
    ];
    let site = Site::over(TestStore::new(Trip::Short), policies).await;
    let browser = site.open().await;
    assert_eq!(browser.text("#policies .group").await, "group: client");
    assert_eq!(browser.text("#policies .settle").await, "");
    assert_eq!(
        browser.text("#policies tr:last-child .settle").await,
        "cost: settled at the end of the response, estimate 5"
    );
    let shown = "document.querySelector('#policies .prefetch').textContent";
    browser
        .until(&format!("{shown} === 'prefetch: at most 25 % for 1 s'"))
        .await;
    for _ in 0..1_000 {
        for policy in ["hot", "cold"] {
            let _ = site.limiter.check(policy, "everybody").await.unwrap();
        }
    }
    // Some took round trips before there was a batch.
    let words = r"/^prefetch: at most 25 % for 1 s; [1-9]\d? % of recent decisions$/";
    browser.until(&format!("{words}.test({shown})")).await;
    for of_another in ["group", "prefetch"] {
        let cell = format!("#policies tr:last-child .{of_another}");
        assert_eq!(browser.text(&cell).await, "");
    }
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn the_page_works_with_a_slash_at_the_end_of_its_address() {
    let site = Site::of([api()]).await;
    let browser = Browser::start().await;
    browser.open(&format!("{}/", site.url)).await;
    browser.until(SHOWS_POLICIES).await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn a_mode_chosen_on_the_page_is_the_limiters_and_can_be_undone() {
    let site = Site::of([api()]).await;
    let browser = site.open().await;
    browser.click("#policies select option[value=shadow]").await;
    browser
        .until("document.querySelector('#toast button')")
        .await;
    assert_eq!(site.limiter.mode("api"), Ok(Mode::Shadow));
    browser.click("#toast button").await;
    browser
        .until("document.querySelector('#policies select').value === 'enforce'")
        .await;
    browser
        .until("document.querySelector('#toast').textContent.includes('enforce')")
        .await;
    assert_eq!(site.limiter.mode("api"), Ok(Mode::Enforce));
    // What another operator does is seen as well.
    site.limiter.set_mode("api", Mode::Off).unwrap();
    browser
        .until("document.querySelector('#policies select').value === 'off'")
        .await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn the_kill_switch_asks_once_and_turns_back_by_keyboard() {
    const ENTER: char = '\u{E007}';
    const ESCAPE: char = '\u{E00C}';
    const TAB: char = '\u{E004}';
    let site = Site::of([api()]).await;
    let browser = site.open().await;
    let is_open = "document.querySelector('#confirm').open";

    // The first element that can be reached is the switch; in the dialog, the button that changes
    // nothing.
    browser.press(&[TAB, ENTER]).await;
    browser.until(is_open).await;
    browser.press(&[ENTER]).await;
    browser.until(&format!("!{is_open}")).await;
    browser.press(&[ENTER]).await;
    browser.until(is_open).await;
    browser.press(&[ESCAPE]).await;
    browser.until(&format!("!{is_open}")).await;
    assert!(site.limiter.is_on());

    browser.press(&[ENTER]).await;
    browser.until(is_open).await;
    browser.press(&[TAB, ENTER]).await;
    browser
        .until("!document.querySelector('#enforcement').hidden")
        .await;
    assert!(!site.limiter.is_on());
    assert_eq!(browser.text("#power").await, "Not limiting");

    browser.press(&[ENTER]).await;
    browser
        .until("document.querySelector('#enforcement').hidden")
        .await;
    assert!(site.limiter.is_on());
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn a_subject_is_looked_at_and_reset_there() {
    let site = Site::of([Policy::new("logins", Limit::sliding_log(5, HOUR))]).await;
    let alice = Key::header("x-user", b"alice");
    let _ = site.limiter.check_cost("logins", &alice, 3).await.unwrap();
    let browser = site.open().await;
    browser.click("#kind option[value=header]").await;
    browser.fill("#name", "x-user").await;
    browser.fill("#value", "alice").await;
    browser.click("#subject button[value=peek]").await;
    browser.until("document.querySelector('#answer b')").await;
    let answer = browser.text("#answer").await;
    assert!(answer.starts_with("2 of 5 left"), "{answer}");
    let hash = site.limiter.subject_of(&alice).to_string();
    assert!(answer.contains(&hash), "{answer}");

    browser.click("#kind option[value=hash]").await;
    browser.fill("#value", &hash).await;
    browser.click("#subject button[value=reset]").await;
    browser
        .until("document.querySelector('#answer').textContent.includes('Reset.')")
        .await;
    assert!(browser.text("#answer").await.starts_with("5 of 5 left"));
    assert_eq!(
        site.limiter
            .peek("logins", &alice)
            .await
            .unwrap()
            .remaining(),
        5
    );
    assert_eq!(browser.complaints().await, [""; 0]);

    // Errors are shown there, too; the browser logs the status of the answer.
    browser.click("#kind option[value=address]").await;
    browser.fill("#value", "<b>nowhere</b>").await;
    browser.click("#subject button[value=peek]").await;
    browser
        .until("document.querySelector('#answer .wrong')")
        .await;
    let answer = browser.text("#answer").await;
    assert!(answer.contains(r#"got "<b>nowhere</b>""#), "{answer}");
}

#[tokio::test]
async fn fifteen_digits_are_shown_to_the_last() {
    const WIDE: u64 = 999_999_999_999_999;
    let site = Site::of([Policy::new("tokens", Limit::fixed_window(WIDE, HOUR))]).await;
    let _ = site.limiter.charge("tokens", "alice", 2).await.unwrap();
    let browser = site.open().await;
    browser.click("#kind option[value=text]").await;
    browser.fill("#value", "alice").await;
    browser.click("#subject button[value=peek]").await;
    browser.until("document.querySelector('#answer b')").await;
    let answer = browser.text("#answer").await;
    let shown = "999,999,999,999,997 of 999,999,999,999,999 left";
    assert!(answer.starts_with(shown), "{answer}");
    let row = browser.text("#policies tr").await;
    assert!(
        row.contains("999999999999999 in each window of 1 h"),
        "{row}"
    );
}

/// The list keeps whom it denied, for a while.
#[tokio::test]
async fn a_subject_of_a_policy_that_was_removed_cannot_be_looked_at() {
    let policies = ["logins", "kept"].map(|name| Policy::new(name, Limit::sliding_log(1, HOUR)));
    let (operator, top) = (Operator::new(), TopDenied::new(8));
    let limiter = Limiter::builder(MemoryStore::new(), policies.clone());
    let limiter = limiter.observe(top.clone()).build().unwrap();
    let router = operator.top_denied(top).router(limiter.clone());
    let url = support::web::serve(Router::new().nest_service("/limits", router)).await;
    for policy in ["logins", "kept"] {
        for _ in 0..3 {
            let _ = limiter.check(policy, "mallory").await.unwrap();
        }
    }
    let browser = Browser::start().await;
    browser.open(&format!("{url}/limits")).await;
    let looks = "document.querySelectorAll('#top-list button').length";
    browser.until(&format!("{looks} === 2")).await;
    let [_, kept] = policies;
    limiter.replace([kept]).unwrap();
    browser.until(&format!("{looks} === 1")).await;
    let list = browser.text("#top-list").await;
    assert!(list.contains("logins"), "{list}");
    assert_eq!(list.matches("policy removed").count(), 1, "{list}");
    browser.click("#top-list button").await;
    browser.until("document.querySelector('#answer b')").await;
    let answer = browser.text("#answer").await;
    assert!(answer.starts_with("0 of 1 left"), "{answer}");
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn markup_in_names_is_shown_as_text() {
    let policy = Policy::new(HOSTILE, Limit::gcra(1, MINUTE)).group(HOSTILE);
    let site = Site::of([policy, api()]).await;
    let browser = site.open().await;
    let group = browser.text("#policies .group").await;
    assert_eq!(group, format!("group: {HOSTILE}"));
    assert_eq!(browser.text("#policies .name").await, HOSTILE);
    browser.click("#policies select option[value=off]").await;
    browser
        .until("document.querySelector('#toast button')")
        .await;
    assert!(browser.text("#toast").await.contains(HOSTILE));
    let made = browser.run("return document.querySelectorAll('img, b b').length");
    assert_eq!(made.await, json!(0));
    assert_eq!(browser.run("return document.title").await, "Limits");
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn the_content_security_policy_blocks_foreign_scripts() {
    let site = Site::of([api()]).await;
    let browser = site.open().await;
    let tried = browser.run(
        "const script = document.createElement('script'); let markup = 'made'; \
         try { script.text = 'document.title = \"owned\"' } catch {} \
         document.body.append(script); \
         try { document.body.innerHTML = '<p>' } catch { markup = 'refused' } \
         return [document.title, markup]",
    );
    assert_eq!(tried.await, json!(["Limits", "refused"]));
    assert_ne!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn the_page_shows_a_server_that_is_gone_and_finds_it_again() {
    let site = Site::of([api()]).await;
    let browser = site.open().await;
    // As a proxy in front may answer when its server is gone.
    browser
        .run("window.fetchBefore = window.fetch; window.fetch = async () => new Response('', { status: 502 })")
        .await;
    browser
        .until("!document.querySelector('#lost').hidden")
        .await;
    let lost = browser.text("#lost").await;
    assert!(lost.starts_with("No answer since"), "{lost}");
    assert!(lost.ends_with("status 502."), "{lost}");
    browser.run("window.fetch = window.fetchBefore").await;
    browser
        .until("document.querySelector('#lost').hidden")
        .await;
}

#[tokio::test]
async fn the_store_and_its_breaker_are_shown() {
    let gone = RedisStore::builder(&format!("redis://127.0.0.1:{}", free_port()));
    let site = Site::over(gone.connect_lazy().unwrap(), [api()]).await;
    let browser = site.open().await;
    assert_eq!(browser.text("#breaker").await, "closed");
    for _ in 0..20 {
        let _ = site.limiter.check("api", "alice").await.unwrap();
    }
    browser
        .until("document.querySelector('#breaker').textContent === 'open'")
        .await;
    assert_ne!(browser.text("#failures").await, "0");
    let last = browser.text("#last-failure").await;
    assert!(last.starts_with("Last failure "), "{last}");
    assert!(last.contains(" ago: the store "), "{last}");
    browser
        .until("document.querySelector('[data-group=failed] b').textContent !== '0'")
        .await;
    // Nothing is limited, and nothing is answered.
    assert_eq!(browser.text("#power").await, "Not limiting");
    let reason = browser.text("#enforcement").await;
    assert!(reason.contains("1 policy lets everything pass"), "{reason}");
    assert!(reason.contains("Redis at 127.0.0.1:"), "{reason}");
    assert!(browser.text("#outage").await.contains("passed uncounted"));
    assert_eq!(browser.text("#latency").await, "no answer");
}

#[tokio::test]
async fn a_policy_is_shown_with_all_of_its_settings() {
    let policy = api()
        .on(Route::post("/login"))
        .on_store_failure(FailureMode::Deny)
        .penalty(Penalty::after(3, MINUTE, HOUR));
    let browser = Site::of([policy]).await.open().await;
    let row = browser.text("#policies tr").await;
    for fact in [
        "header x-user",
        "POST /login",
        "without the store: deny",
        "3 denials",
        "1 h",
    ] {
        assert!(row.contains(fact), "{fact}: {row}");
    }
}

#[tokio::test]
async fn the_form_has_a_field_for_each_part_of_the_policys_key() {
    let limit = Limit::sliding_log(5, HOUR);
    let login = Policy::new("login", limit).by((PeerAddr, Header::new("x-user")));
    let site = Site::of([login]).await;
    let alice = Key::all([
        Key::address([203, 0, 113, 9].into()),
        Key::header("x-user", b"alice"),
    ]);
    let _ = site.limiter.check_cost("login", &alice, 3).await.unwrap();
    let browser = site.open().await;
    browser
        .fill("[aria-label='Client address']", "203.0.113.9")
        .await;
    browser.fill("[aria-label='Header x-user']", "alice").await;
    browser.click("#subject button[value=peek]").await;
    browser.until("document.querySelector('#answer b')").await;
    let answer = browser.text("#answer").await;
    assert!(answer.starts_with("2 of 5 left"), "{answer}");
    assert_eq!(browser.complaints().await, [""; 0]);
}

/// A script reads a number of more than 53 bits as another one, which is somebody else.
#[tokio::test]
async fn nobody_else_is_reset_by_a_number_that_a_script_cannot_count() {
    let site = Site::of([Policy::new("logins", Limit::sliding_log(5, HOUR))]).await;
    let other = Key::user(9_007_199_254_740_992_u64);
    for key in [other.clone(), Key::all([other])] {
        let _ = site.limiter.check_cost("logins", &key, 3).await.unwrap();
        let browser = site.open().await;
        for (kind, value) in [
            ("json", r#"{"user": 9007199254740993}"#),
            ("json", r#"[{"user": 9007199254740993}]"#),
        ] {
            let page = "document.querySelector('#answer').replaceChildren()";
            browser.run(page).await;
            browser.click(&format!("#kind option[value={kind}]")).await;
            browser.fill("#value", value).await;
            browser.click("#subject button[value=reset]").await;
            browser
                .until("document.querySelector('#answer').textContent")
                .await;
            let answer = browser.text("#answer").await;
            assert!(answer.contains("not a whole number below 2^53"), "{answer}");
        }
        let left = site.limiter.peek("logins", &key).await.unwrap().remaining();
        assert_eq!(left, 2);
    }
}
