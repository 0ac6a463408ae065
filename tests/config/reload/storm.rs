//! Reloads under load: no request finds a moment without limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use reqwest::{Client, StatusCode};

use super::file::{Limits, serve, with};
use support::web::GENEROUS;

const RELOADS: usize = 50;
const PERMITS: usize = 200;

/// Files that differ in everything that a reload changes, except for the one limit under test.
fn version(number: usize) -> String {
    let head = match number % 4 {
        0 => "headers = \"draft-6\"",
        1 => "exempt = [\"/health\"]",
        2 => "allow = [\"192.0.2.1\"]\nrejection = \"plain-text\"",
        _ => "",
    };
    let more = format!(
        "[[policy]]\nname = \"other-{}\"\nalgorithm = \"gcra\"\nlimit = \"{}/s\"\nkey = \"peer\"",
        number % 3,
        1_000_000 + number
    );
    with(head, &format!("{PERMITS}/day"), &more)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_passes_unlimited_while_the_file_changes() {
    let file = Limits::new(&version(0));
    let mut limits = file.open().await;
    let url = serve(limits.config.layer()).await;
    let (allowed, denied) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let is_over = Arc::<AtomicBool>::default();
    let client = Client::new();
    let ask = || {
        let (client, url, is_over) = (client.clone(), url.clone(), Arc::clone(&is_over));
        let (allowed, denied) = (Arc::clone(&allowed), Arc::clone(&denied));
        async move {
            while !is_over.load(Ordering::SeqCst) {
                let response = client.get(&url).send().await.unwrap();
                match response.status() {
                    StatusCode::OK => allowed.fetch_add(1, Ordering::SeqCst),
                    StatusCode::TOO_MANY_REQUESTS => denied.fetch_add(1, Ordering::SeqCst),
                    status => panic!("{status}"),
                };
            }
        }
    };
    let clients: Vec<_> = (0..8).map(|_| tokio::spawn(ask())).collect();
    for number in 1..=RELOADS {
        let so_far = denied.load(Ordering::SeqCst);
        file.replace(&version(number));
        limits.reloaded().await;
        // Each of the files has been in force, not only the last.
        let another_is_denied = async {
            while denied.load(Ordering::SeqCst) <= so_far {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(GENEROUS, another_is_denied)
            .await
            .unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(allowed.load(Ordering::SeqCst), PERMITS);
    assert!(denied.load(Ordering::SeqCst) > RELOADS);
}
