//! What is logged about a file.

use tracing::Level;

use super::file::{Limits, limit};
use super::log::Log;

/// No other test of this program may listen everywhere.
#[tokio::test]
async fn a_file_without_policies_is_warned_of_and_each_reload_tells_how_many_there_are() {
    let log = Log::listen_everywhere();
    let file = Limits::new("store = \"memory\"\npolicy = []\n");
    let path = file.path().display().to_string();
    let said = || {
        let events = log.events().into_iter();
        let of_this = events.filter(|event| event.fields.get("file") == Some(&path));
        let told = |event: super::log::Entry| {
            let policies = event.fields.get("policies").cloned();
            (event.level, event.name, policies)
        };
        of_this.map(told).collect::<Vec<_>>()
    };
    let reloaded = |policies: &str| {
        let text = "the limits are reloaded".to_owned();
        (Level::INFO, text, Some(policies.to_owned()))
    };
    let text = "the file has no policy: nothing is limited".to_owned();
    let warned = (Level::WARN, text, None);

    let mut limits = file.open().await;
    assert_eq!(said(), std::slice::from_ref(&warned));
    file.replace(&limit("3/day"));
    limits.reloaded().await;
    assert_eq!(said(), [warned.clone(), reloaded("1")]);
    file.replace("store = \"memory\"\npolicy = []\n");
    limits.reloaded().await;
    assert_eq!(said()[2..], [reloaded("0"), warned]);
}
