//! What a reload changes, and what it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tower_throttle::{ConfigFile, DecisionEvent, Mode, Observer};

use super::file::{Limits, limit, with};

#[derive(Default)]
struct Count(AtomicUsize);

impl Observer for Count {
    fn on_decision(&self, _: &DecisionEvent<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A hook that panics is called again.
#[tokio::test]
async fn observers_and_callbacks_survive_a_reread_of_the_file() {
    let file = Limits::new(&limit("3/day"));
    let count = Arc::new(Count::default());
    let (sender, mut reloads) = mpsc::unbounded_channel();
    let limits = ConfigFile::new(file.path())
        .observe(Arc::clone(&count))
        .on_reload(move |_| {
            let _ = sender.send(());
            panic!("as a test does");
        });
    let limits = limits.open().await.unwrap();
    for number in 1..4 {
        file.replace(&limit(&format!("{}/day", 3 + number)));
        reloads.recv().await.unwrap();
        let check = limits.limiter();
        let _ = check.check("client", "somebody").await.unwrap();
        assert_eq!(count.0.load(Ordering::SeqCst), number);
    }
}

#[tokio::test]
async fn used_permits_stay_used_when_a_limits_number_changes() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    for _ in 0..2 {
        assert!(limits.is_allowed("client").await);
    }
    file.replace(&limit("5/day"));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 3);

    file.replace(&limit("2/day"));
    limits.reloaded().await;
    assert!(!limits.is_allowed("client").await);
}

/// As docs/configuration.md says of windows and of debts.
#[tokio::test]
async fn windows_keep_a_count_and_debts_a_share() {
    let text = |algorithm: &str, limit: &str, more: &str| {
        with("", limit, more).replace("fixed-window", algorithm)
    };
    for (algorithm, before, after, used, left) in [
        ("fixed-window", ("100/day", ""), ("200/day", ""), 100, 100),
        ("sliding-log", ("100/day", ""), ("200/day", ""), 100, 100),
        ("gcra", ("100/day", ""), ("200/day", ""), 100, 0),
        ("gcra", ("100/day", ""), ("200/day", ""), 50, 100),
        (
            "gcra",
            ("100/day", ""),
            ("100/day", "burst = 200"),
            100,
            100,
        ),
        ("token-bucket", ("100/day", ""), ("200/day", ""), 100, 0),
        (
            "token-bucket",
            ("100/day", ""),
            ("100/day", "capacity = 200"),
            100,
            100,
        ),
    ] {
        let file = Limits::new(&text(algorithm, before.0, before.1));
        let mut limits = file.open().await;
        for _ in 0..used {
            assert!(limits.is_allowed("client").await);
        }
        file.replace(&text(algorithm, after.0, after.1));
        limits.reloaded().await;
        assert_eq!(
            limits.remaining("client").await,
            left,
            "{algorithm} {after:?}"
        );
    }
}

#[tokio::test]
async fn policies_come_and_go_and_the_others_keep_what_was_used() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);
    let second =
        "[[policy]]\nname = \"second\"\nalgorithm = \"gcra\"\nlimit = \"9/day\"\nkey = \"peer\"";
    file.replace(&with("", "3/day", second));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 2);
    assert_eq!(limits.remaining("second").await, 9);

    file.replace(&limit("3/day"));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 2);
    let gone = limits.config.limiter().check("second", "somebody").await;
    assert_eq!(
        gone.unwrap_err().to_string(),
        "no policy is named \"second\""
    );
}

#[tokio::test]
async fn a_mode_set_at_run_time_stays_until_the_file_says_another() {
    let file = Limits::new(&limit("1/day"));
    let mut limits = file.open().await;
    let limiter = limits.config.limiter();
    limiter.set_mode("client", Mode::Shadow).unwrap();

    file.replace(&limit("2/day"));
    limits.reloaded().await;
    assert_eq!(limiter.mode("client").unwrap(), Mode::Shadow);

    file.replace(&with("", "2/day", "mode = \"off\""));
    limits.reloaded().await;
    assert_eq!(limiter.mode("client").unwrap(), Mode::Off);

    file.replace(&limit("2/day"));
    limits.reloaded().await;
    assert_eq!(limiter.mode("client").unwrap(), Mode::Enforce);
}
