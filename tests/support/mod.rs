//! What the test programs share: servers, proxies, clocks, stores, random histories.
#![allow(
    missing_debug_implementations,
    missing_docs,
    clippy::exhaustive_enums,
    reason = "only the tests of this repository use it"
)]

/// The folder of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub mod asked;
pub mod asking;
pub mod bench;
pub mod browser;
pub mod cluster;
pub mod drawn;
pub mod example;
pub mod history;
pub mod http_store;
pub mod limits;
pub mod log;
pub mod logins;
pub mod memory;
pub mod programs;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod rights;
pub mod router;
pub mod same_for_all;
pub mod sentinel;
pub mod sources;
pub mod until;
pub mod virtual_time;
pub mod web;

/// Makes a test on each store of every `async fn name(bench: &Bench)` that is named.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::bench::Bench::memory()).await;
            })*
        }
        mod deny_cache {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::bench::Bench::deny_cache()).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::bench::Bench::redis().await).await;
            })*
        }
    };
}
