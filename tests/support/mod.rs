//! What several test files share. Each uses a part of it.
#![allow(dead_code, unreachable_pub, unused_macros, unused_imports)]

pub mod asking;
pub mod bench;
pub mod browser;
pub mod cluster;
pub mod drawn;
pub mod example;
pub mod history;
pub mod limits;
pub mod logins;
pub mod memory;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod rights;
pub mod router;
pub mod sentinel;
pub mod until;
pub mod virtual_time;
pub mod web;

/// Makes a test on each store of every `async fn name(bench: &Bench)` that is named.
macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::support::bench::Bench::memory()).await;
            })*
        }
        mod deny_cache {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::support::bench::Bench::deny_cache()).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::support::bench::Bench::redis().await).await;
            })*
        }
    };
}
pub(crate) use on_every_store;
