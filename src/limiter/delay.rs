//! `Delay`: how long those wait whose permits are still to come.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::timeout;

use super::Limiter;

/// Ends when the permits are there.
pub(crate) type Delay = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Limiter {
    /// Of so long, unless limiting is turned off before: then nobody is held up.
    pub(crate) fn delay(&self, delay: Duration) -> Delay {
        let limiter = self.clone();
        Box::pin(async move {
            let mut turned_off = pin!(limiter.0.turned_off.notified());
            // It is told of what happens from here on.
            turned_off.as_mut().enable();
            if limiter.is_on() {
                // Over, or turned off.
                let _ = timeout(delay, turned_off).await;
            }
        })
    }
}
