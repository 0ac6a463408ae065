//! What is logged about a file.

use tracing::Level;

use super::file::{Limits, limit};
use support::log::Log;

/// No other test of this program may listen everywhere.
#[tokio::test]
async fn reloads_are_logged_and_missing_policies_warned_of() {
    let log = Log::listen_everywhere();
    let file = Limits::new("store = \"memory\"\npolicy = []\n");
    let path = file.path().display().to_string();
    let said = || {
        let events = log.events().into_iter();
        let of_this = events.filter(|event| event.fields.get("file") == Some(&path));
        let told = |event: support::log::Entry| {
            let policies = event.fields.get("policies").cloned();
            assert!(event.name.contains(&path), "{event:?}");
            assert!(!event.name.contains('\n'), "{event:?}");
            (event.level, policies)
        };
        of_this.map(told).collect::<Vec<_>>()
    };
    let reloaded = |policies: &str| (Level::INFO, Some(policies.to_owned()));
    let warned = || (Level::WARN, None);

    let mut limits = file.open().await;
    assert_eq!(said(), [warned()]);
    file.replace(&limit("3/day"));
    limits.reloaded().await;
    assert_eq!(said(), [warned(), reloaded("1")]);
    file.replace("store = \"memory\"\npolicy = []\n");
    limits.reloaded().await;
    assert_eq!(said()[2..], [reloaded("0"), warned()]);
    file.replace("store = \"memory\"\n\"x\\nERROR\" = 1\n");
    limits.outcome().await.unwrap_err();
    assert_eq!(said()[4..], [(Level::ERROR, None)]);
}
