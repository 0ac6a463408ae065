//! The operators' page in a real browser: the last hour, the modes, who is blocked, what was changed; and
//! how it looks on a phone and on a screen, in light and dark.

use serde_json::json;
use support::browser::Browser;
use tower_throttle::{
    Header, Key, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Mode, Operator, Outcome,
    PeerAddr, Policy, Prefetch, SECOND, TopDenied, extractor, per_hour,
};

use crate::Site;

/// Markup, if it were put into the page as such.
const HOSTILE: &str = r#"<img src=x onerror="document.title=1"><b>scraping"#;

fn api() -> Policy {
    Policy::new("api", Limit::gcra(100, MINUTE)).by(Header::new("x-user"))
}

/// A site whose clock stands still, and whose operator is alice.
async fn site(policies: impl IntoIterator<Item = Policy>) -> (Site, ManualClock) {
    let clock = ManualClock::new();
    let operator = Operator::new().clock(clock.clone());
    let operator = operator.client_address(PeerAddr).unwrap();
    let operator = operator.actor(extractor(|_| Some("alice".to_owned())));
    let top = TopDenied::new(8);
    let operator = operator.top_denied(top.clone());
    let limiter = Limiter::builder(MemoryStore::new(), policies)
        .observe(operator.clone())
        .observe(top)
        .build()
        .unwrap();
    (Site::about(limiter, operator).await, clock)
}

async fn open(site: &Site) -> Browser {
    let browser = Browser::start().await;
    browser.open(&site.url).await;
    browser
        .until("document.querySelector('#policies tr')")
        .await;
    browser
}

#[tokio::test]
async fn the_last_hour_is_there_when_the_page_opens() {
    let (site, clock) = site([api()]).await;
    let bob = Key::header("x-user", b"bob");
    for minute in 0..10 {
        let _ = site.limiter.charge("api", &bob, 0).await.unwrap();
        for _ in 0..=minute {
            let _ = site.limiter.check_cost("api", &bob, 1).await.unwrap();
        }
        clock.advance(MINUTE);
    }
    // More than ever fits.
    for _ in 0..3 {
        let _ = site.limiter.check_cost("api", &bob, 1_000).await.unwrap();
    }
    let browser = open(&site).await;
    let words = "document.querySelector('#hour-words').textContent";
    browser
        .until(&format!(
            "{words} === 'In 11 min since the start: 55 allowed, 3 denied.'"
        ))
        .await;
    // One bar for each minute in which there was something.
    let bars = |group: &str| {
        let path = format!("document.querySelector('#hour path.{group}')");
        format!("{path}?.getAttribute('d').split('M').length - 1")
    };
    browser.until(&format!("{} === 10", bars("allowed"))).await;
    browser.until(&format!("{} === 1", bars("denied"))).await;
    clock.advance(60 * MINUTE);
    browser
        .until(&format!(
            "{words} === 'In the last hour: 0 allowed, 0 denied.'"
        ))
        .await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn each_policys_mode_is_shown_by_a_word_and_a_colour() {
    let (site, _) =
        site(["one", "two", "three"].map(|name| Policy::new(name, Limit::gcra(1, SECOND)))).await;
    for (policy, mode) in [("two", Mode::Shadow), ("three", Mode::Off)] {
        site.limiter.set_mode(policy, mode).unwrap();
    }
    let browser = open(&site).await;
    let pills = "[...document.querySelectorAll('#policies .pill')]";
    let words = format!("return {pills}.map((pill) => pill.textContent)");
    let words = browser.run(&words).await;
    assert_eq!(words, json!(["enforced", "shadow", "off"]));
    for is_dark in [false, true] {
        browser.look(1200, 900, is_dark).await;
        let grounds = format!(
            "return new Set({pills}.map((pill) => getComputedStyle(pill).backgroundColor)).size"
        );
        assert_eq!(browser.run(&grounds).await, json!(3));
    }
    site.limiter.set_mode("one", Mode::Shadow).unwrap();
    browser
        .until(&format!("{pills}[0].textContent === 'shadow'"))
        .await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn a_subject_is_blocked_with_a_reason_and_the_block_is_lifted() {
    let (site, clock) = site([api()]).await;
    let mallory = Key::header("x-user", b"mallory");
    let outcome = async || site.limiter.check("api", &mallory).await.unwrap().outcome();
    let browser = open(&site).await;
    browser
        .fill("[aria-label='Header x-user']", "mallory")
        .await;
    browser.click("#subject button[value=block]").await;
    browser.until("document.querySelector('#block').open").await;
    browser.fill("#reason", HOSTILE).await;
    browser.click("#block-time option[value='900']").await;
    browser.click("#block-form button[type=submit]").await;
    browser.until("document.querySelector('#blocks li')").await;
    assert_eq!(outcome().await, Outcome::Refused);
    let line = browser.text("#blocks li").await;
    let subject = site.limiter.subject_of(&mallory).to_string();
    for said in ["api", &subject, HOSTILE, "(alice)", "15 min left"] {
        assert!(line.contains(said), "{said}: {line}");
    }
    let made = browser.run("return document.querySelectorAll('img, b b').length");
    assert_eq!(made.await, json!(0));
    clock.advance(14 * MINUTE);
    browser
        .until("document.querySelector('#blocks .left').textContent === '60 s left'")
        .await;

    browser.click("#blocks button").await;
    browser.until("!document.querySelector('#blocks li')").await;
    assert_eq!(outcome().await, Outcome::Allowed);
    assert_eq!(browser.text("#blocks-none").await, "Nobody is blocked.");
    browser
        .until("document.querySelectorAll('#changes li').length === 2")
        .await;
    let lifted = browser.text("#changes li").await;
    for said in ["Block lifted", &subject, HOSTILE, "not blocked", "alice"] {
        assert!(lifted.contains(said), "{said}: {lifted}");
    }
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn an_address_is_blocked_in_a_dialog_that_shows_what_is_wrong() {
    let (site, clock) = site([api()]).await;
    let browser = open(&site).await;
    browser
        .until("!document.querySelector('#block-address').hidden")
        .await;
    browser.click("#block-address").await;
    browser.fill("#address", "203.0.113.9/24").await;
    browser.fill("#reason", "scraping").await;
    browser.click("#block-form button[type=submit]").await;
    browser
        .until("document.querySelector('#block-error').textContent")
        .await;
    let error = browser.text("#block-error").await;
    assert!(
        error.contains("write 203.0.113.0/24 for that range"),
        "{error}"
    );
    browser.fill("#address", "203.0.113.0/24").await;
    browser.click("#block-form button[type=submit]").await;
    browser.until("document.querySelector('#blocks li')").await;
    assert_eq!(crate::status_from(&site.limiter, "203.0.113.9").await, 403);
    clock.advance(60 * MINUTE);
    browser.until("!document.querySelector('#blocks li')").await;
    assert_eq!(crate::status_from(&site.limiter, "203.0.113.9").await, 200);
}

#[tokio::test]
async fn without_the_clients_address_no_address_can_be_blocked() {
    let site = Site::of([api()]).await;
    let browser = open(&site).await;
    let hidden = browser.run("return document.querySelector('#block-address').hidden");
    assert_eq!(hidden.await, true);
}

/// Nothing has to be scrolled sideways, however long the names and the reasons.
#[tokio::test]
async fn the_page_fits_phones_and_screens_in_light_and_dark() {
    let name = "a-name-as-long-as-a-name-may-be-".repeat(2);
    let limit = Limit::token_bucket(5, per_hour(5));
    let policy = Policy::new(&name, limit).group(&name).show_subject();
    let (site, _) = site([policy.prefetch(Prefetch::new())]).await;
    for _ in 0..20 {
        let _ = site.limiter.check(&name, name.as_str()).await.unwrap();
    }
    let text = json!({ "text": name });
    let block =
        json!({ "policy": name, "subject": text, "for_secs": 604_800, "reason": "x".repeat(200) });
    site.post_ok("block", block).await;
    let address = json!({ "address": "2001:db8:1111:2222:3333:4444:5555:6666", "for_secs": 60, "reason": "y" });
    site.post_ok("block", address).await;
    site.post_ok("mode", json!({ "policy": name, "mode": "off" }))
        .await;
    let browser = open(&site).await;
    browser.until("document.querySelector('#changes li')").await;
    browser
        .until("document.querySelector('#top-list li')")
        .await;
    let mut grounds = Vec::new();
    for is_dark in [false, true] {
        for width in [360, 390, 768, 1200] {
            browser.look(width, 844, is_dark).await;
            let page = "const page = document.documentElement; \
                        return page.scrollWidth - page.clientWidth";
            assert_eq!(browser.run(page).await, json!(0), "{width} {is_dark}");
            // Nor inside of a part.
            let wide = "return [...document.querySelectorAll('section, ul, ol, table')] \
                        .filter((part) => part.scrollWidth > part.clientWidth).length";
            assert_eq!(browser.run(wide).await, json!(0), "{width} {is_dark}");
        }
        let ground = browser.run("return getComputedStyle(document.body).backgroundColor");
        grounds.push(ground.await);
    }
    assert_ne!(grounds[0], grounds[1]);
    browser.look(390, 844, false).await;
    browser.click("#block-address").await;
    let dialog = "const box = document.querySelector('#block').getBoundingClientRect(); \
                  return box.left >= 0 && box.right <= 390";
    assert_eq!(browser.run(dialog).await, json!(true));
}
