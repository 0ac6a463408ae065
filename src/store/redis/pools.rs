//! Stores over pools of deadpool-redis.

use super::connection::Hook;
use super::{RedisStore, RedisStoreBuilder};

const BY_POOL: &str = "Redis by a pool of connections";

#[cfg_attr(docsrs, doc(cfg(feature = "deadpool")))]
impl RedisStore {
    /// Takes its connections from a pool of yours, however it is configured. The connection in use
    /// is removed from the pool for good, so that the pool keeps its size for others. A pool of
    /// another version of deadpool-redis is another type; the right version is
    /// [`tower_throttle::deadpool_redis`](crate::deadpool_redis).
    ///
    /// Connects with the first decision. For another prefix, or to detect faults at start-up, use
    /// [`builder_over_pool`](Self::builder_over_pool).
    ///
    /// Its server is not asked for its role. Pools to a cluster are not supported: see
    /// [`builder_with`](Self::builder_with).
    pub fn from_pool(pool: deadpool_redis::Pool) -> Self {
        Self::with_defaults(Self::builder_over_pool(pool))
    }

    /// The same from a pool that asks Sentinel. A pooled connection to a demoted master is dropped.
    ///
    /// The pool does not tell where the Sentinels are. So a master that was replaced is left when it
    /// is demoted, up to 10 seconds after a planned failover; a `redis-sentinel://` URL moves within a
    /// second.
    #[cfg(feature = "deadpool-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool-sentinel")))]
    pub fn from_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self::with_defaults(Self::builder_over_sentinel_pool(pool))
    }

    /// Builds a store with other settings than the defaults of [`from_pool`](Self::from_pool).
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

    /// Builds a store with other settings than the defaults of
    /// [`from_sentinel_pool`](Self::from_sentinel_pool).
    #[cfg(feature = "deadpool-sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool-sentinel")))]
    pub fn builder_over_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::over(Hook::from_sentinel_pool(pool), BY_POOL)
    }

    fn with_defaults(builder: RedisStoreBuilder) -> Self {
        builder.connect_lazy().expect("the defaults are valid")
    }
}
