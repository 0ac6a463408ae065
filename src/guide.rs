//! Guides: how to set up a limiter, choose limits and run it. Begin with [`start`].
//!
//! | guide | answers |
//! |---|---|
//! | [`start`] | how to limit a first service, what its responses say, common mistakes |
//! | [`limits`] | which limit fits, and what it guarantees |
//! | [`keys`] | which requests are counted together: by address, user or header |
//! | [`redis`] | how processes share limits: URLs, permissions, managed services |
//! | [`failure_modes`] | what happens when Redis fails |
//! | [`costs`] | requests that cost more than one permit; tiers and bans |
//! | [`usage`] | tokens, money and budgets: a cost that is known when the response has ended |
//! | [`waiting`] | how to delay requests, keep to the limit of another API, and limit what runs at the same time |
//! | [`grpc`] | limits for tonic |
//! | [`headers`] | what clients see |
//! | [`prefetch`] | how a busy policy can ask Redis less often |
//! | [`configuration`] | how to keep policies in a file |
//! | [`operations`] | what to do when something is wrong |
//! | [`observability`] | metrics, logs and spans |
//! | [`replay`] | what limits would have done to an access log |
//! | [`testing`] | how to test a service with limits |
//! | [`security`] | what an attacker can do, and what stops it |
//! | [`performance`] | what a decision costs |
//! | [`memory`] | what a key costs |
//! | [`migrating`] | how to move from another rate limiter |

// The pages link to each other by `[text][keys.md]`. Each ends with a definition such as `[keys.md]: keys.md`, which
// works where the files lie side by side. The first definition of a label counts, so that in rustdoc these win.
// Images are none of rustdoc's files: they come from the repository.
macro_rules! image {
    ($file:literal) => {
        concat!(
            "[",
            $file,
            "]: https://raw.githubusercontent.com/tower-throttle/tower-throttle/HEAD/docs/",
            $file,
            "\n"
        )
    };
}

macro_rules! links {
    () => {
        concat!(
            "[start.md]: crate::guide::start\n",
            "[limits.md]: crate::guide::limits\n",
            "[keys.md]: crate::guide::keys\n",
            "[redis.md]: crate::guide::redis\n",
            "[failure-modes.md]: crate::guide::failure_modes\n",
            "[costs.md]: crate::guide::costs\n",
            "[usage.md]: crate::guide::usage\n",
            "[waiting.md]: crate::guide::waiting\n",
            "[grpc.md]: crate::guide::grpc\n",
            "[headers.md]: crate::guide::headers\n",
            "[prefetch.md]: crate::guide::prefetch\n",
            "[configuration.md]: crate::guide::configuration\n",
            "[operations.md]: crate::guide::operations\n",
            "[observability.md]: crate::guide::observability\n",
            "[replay.md]: crate::guide::replay\n",
            "[testing.md]: crate::guide::testing\n",
            "[security.md]: crate::guide::security\n",
            "[performance.md]: crate::guide::performance\n",
            "[memory.md]: crate::guide::memory\n",
            "[migrating.md]: crate::guide::migrating\n",
            image!("algorithms.svg"),
            image!("operator.png"),
            image!("replay.svg"),
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
#[doc = include_str!("../docs/usage.md")]
pub mod usage {}

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
#[doc = include_str!("../docs/replay.md")]
pub mod replay {}

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
