//! Stores over pools of deadpool-redis.

use super::connection::Hook;
use super::{RedisStore, RedisStoreBuilder};

const BY_POOL: &str = "Redis by a pool of connections";

#[cfg_attr(docsrs, doc(cfg(feature = "deadpool")))]
impl RedisStore {
    /// Builds a store over a pool of deadpool-redis.
    ///
    /// The first decision connects. To set a prefix, or to run the self-test at start-up, use
    /// [`builder_over_pool`](Self::builder_over_pool). The store detaches its connection from the
    /// pool, so the pool keeps its size for others. The pool must be of the version that is
    /// re-exported as [`tower_throttle::deadpool_redis`](crate::deadpool_redis).
    ///
    /// The store does not check whether the server is a replica. Pools for clusters are not
    /// supported: see [`builder_with`](Self::builder_with).
    pub fn from_pool(pool: deadpool_redis::Pool) -> Self {
        Self::with_defaults(Self::builder_over_pool(pool))
    }

    /// Builds a store over a pool of deadpool-redis that asks Sentinel. Pooled connections to a
    /// demoted master are dropped.
    ///
    /// The store does not know the Sentinels of the pool, so it leaves a former master only when that
    /// is demoted, up to 10 s after a planned failover. With a `redis-sentinel://` URL it moves
    /// within a second.
    #[cfg(feature = "deadpool-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool-sentinel")))]
    pub fn from_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self::with_defaults(Self::builder_over_sentinel_pool(pool))
    }

    /// Builds a store with other settings than [`from_pool`](Self::from_pool).
    ///
    /// ```no_run
    /// use tower_throttle::RedisStore;
    /// use tower_throttle::deadpool_redis::{Config, Runtime};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Config::from_url("redis://127.0.0.1:6379").create_pool(Some(Runtime::Tokio1))?;
    /// let store = RedisStore::builder_over_pool(pool).prefix("shop").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder_over_pool(pool: deadpool_redis::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::over(Hook::from_pool(pool), BY_POOL)
    }

    /// Builds a store with other settings than [`from_sentinel_pool`](Self::from_sentinel_pool).
    #[cfg(feature = "deadpool-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool-sentinel")))]
    pub fn builder_over_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::over(Hook::from_sentinel_pool(pool), BY_POOL)
    }

    fn with_defaults(builder: RedisStoreBuilder) -> Self {
        builder.connect_lazy().expect("the defaults are valid")
    }
}
