//! `Delay`: how long a caller waits for permits that are still to come.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::timeout;

use super::Limiter;

/// Ready when the permits are there.
pub(crate) type Delay = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Limiter {
    /// Waits this long, or until limiting is turned off: then nobody is held up.
    pub(crate) fn delay(&self, delay: Duration) -> Delay {
        let limiter = self.clone();
        Box::pin(async move {
            let mut turned_off = pin!(limiter.0.turned_off.notified());
            // From here on it is notified.
            turned_off.as_mut().enable();
            if limiter.is_on() {
                // Either the delay is over, or limiting was turned off.
                let _ = timeout(delay, turned_off).await;
            }
        })
    }
}
