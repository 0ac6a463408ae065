//! Guides: how to set a limiter up, choose limits and run it.
//!
//! | guide | answers |
//! |---|---|
//! | [`start`] | how to limit a first service, and what its responses say |
//! | [`limits`] | which limit fits, and what its numbers mean |
//! | [`keys`] | whom a limit counts: behind proxies, behind authentication, in a handler |
//! | [`redis`] | how a fleet shares limits: URLs, rights, managed services |
//! | [`failure_modes`] | what happens when Redis fails |
//! | [`costs`] | requests that cost more than one, or whose cost is known late; tiers and bans |
//! | [`waiting`] | how to wait for permits, and how to keep to somebody else's limit |
//! | [`grpc`] | limits for tonic |
//! | [`headers`] | what a client sees |
//! | [`prefetch`] | how to take permits of a busy policy in batches |
//! | [`configuration`] | how to keep policies in a file |
//! | [`operations`] | what to do when something is wrong |
//! | [`observability`] | metrics, logs and spans |
//! | [`testing`] | how to test a service with limits |
//! | [`security`] | what an attacker can do, and what stops it |
//! | [`performance`] | what a decision costs |
//! | [`memory`] | what a key costs |
//! | [`migrating`] | how to come from another rate limiter |

// The pages link to each other by `[text][keys.md]`. Each ends with a definition such as `[keys.md]: keys.md`, which
// works where the files lie side by side. The first definition of a label counts, so that in rustdoc these win.
macro_rules! links {
    () => {
        concat!(
            "[start.md]: crate::guide::start\n",
            "[limits.md]: crate::guide::limits\n",
            "[keys.md]: crate::guide::keys\n",
            "[redis.md]: crate::guide::redis\n",
            "[failure-modes.md]: crate::guide::failure_modes\n",
            "[costs.md]: crate::guide::costs\n",
            "[waiting.md]: crate::guide::waiting\n",
            "[grpc.md]: crate::guide::grpc\n",
            "[headers.md]: crate::guide::headers\n",
            "[prefetch.md]: crate::guide::prefetch\n",
            "[configuration.md]: crate::guide::configuration\n",
            "[operations.md]: crate::guide::operations\n",
            "[observability.md]: crate::guide::observability\n",
            "[testing.md]: crate::guide::testing\n",
            "[security.md]: crate::guide::security\n",
            "[performance.md]: crate::guide::performance\n",
            "[memory.md]: crate::guide::memory\n",
            "[migrating.md]: crate::guide::migrating\n",
            "\n"
        )
    };
}

#[doc = links!()]
#[doc = include_str!("../docs/start.md")]
pub mod start {}

#[doc = links!()]
#[doc = include_str!("../docs/limits.md")]
pub mod limits {}

#[doc = links!()]
#[doc = include_str!("../docs/keys.md")]
pub mod keys {}

#[doc = links!()]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}

#[doc = links!()]
#[doc = include_str!("../docs/failure-modes.md")]
pub mod failure_modes {}

#[doc = links!()]
#[doc = include_str!("../docs/costs.md")]
pub mod costs {}

#[doc = links!()]
#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}

#[doc = links!()]
#[doc = include_str!("../docs/grpc.md")]
pub mod grpc {}

#[doc = links!()]
#[doc = include_str!("../docs/headers.md")]
pub mod headers {}

#[doc = links!()]
#[doc = include_str!("../docs/prefetch.md")]
pub mod prefetch {}

#[doc = links!()]
#[doc = include_str!("../docs/configuration.md")]
pub mod configuration {}

#[doc = links!()]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = links!()]
#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

#[doc = links!()]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = links!()]
#[doc = include_str!("../docs/security.md")]
pub mod security {}

#[doc = links!()]
#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = links!()]
#[doc = include_str!("../docs/memory.md")]
pub mod memory {}

#[doc = links!()]
#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}
