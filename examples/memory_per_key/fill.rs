//! Uses permits of many keys, through any store.

use std::error::Error;
use std::num::NonZeroU64;

use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId};
use tower_throttle::store::{Answer, Check, PolicyId, Store};
use tower_throttle::{FailureMode, Key, ManualClock, StoreError, Subject};

use crate::limits::{Measured, Use, WINDOW};

/// The number of keys in one question.
const AT_ONCE: usize = 50;

/// Acquires permits of each key, spread evenly over the window before the clock's new time.
pub(crate) async fn fill(
    store: &impl Store,
    clock: &ManualClock,
    limit: &Measured,
    used: Use,
    keys: u64,
) -> Result<(), Box<dyn Error>> {
    for time in 0..used.times {
        if time > 0 {
            clock.advance(WINDOW / used.times as u32);
        }
        // The largest numbers have the most digits; those of a process begin at random.
        let number = NonZeroU64::MAX.get() - time;
        let mut take = Acquire::new(used.cost);
        take.lease = NonZeroU64::new(number).map(LeaseId::from);
        act(store, limit, Action::Acquire(take), keys).await?;
    }
    Ok(())
}

/// Asks the same about each key.
pub(crate) async fn act(
    store: &impl Store,
    limit: &Measured,
    action: Action,
    keys: u64,
) -> Result<(), Box<dyn Error>> {
    let (policy, algorithm) = (PolicyId::new("client"), Algorithm::try_from(&limit.limit)?);
    let numbers: Vec<u64> = (0..keys).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let check = |&number: &u64| {
            Check::new(
                &policy,
                Subject::from(&Key::from(number)),
                algorithm,
                action,
            )
            .with_failure_mode(FailureMode::Deny)
        };
        let checks: Vec<_> = numbers.iter().map(check).collect();
        if !ask(store, &checks).await? {
            return Err(format!("{}: the permits are not there", limit.name).into());
        }
    }
    Ok(())
}

async fn ask(store: &impl Store, checks: &[Check<'_>]) -> Result<bool, StoreError> {
    let decisions = match store.ask(checks) {
        Answer::Ready(decisions) => decisions?,
        Answer::Pending(decisions) => decisions.await?,
    };
    Ok(decisions.all_allow())
}
