//! What is tried at start-up, on every master: each has users of its own.

use tokio::task::JoinSet;

use super::slots::{Node, Slot, SlotMap};
use super::{Cluster, Route, is_about_the_node};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connection::Lane;
use crate::store::redis::keys::Prefix;
use crate::store::redis::self_test::SelfTest;
use crate::trace;

impl Cluster {
    /// Tries what decisions do. A master that gives no answer keeps nobody from starting, as long as others
    /// do.
    pub(in crate::store::redis) async fn try_out(&self, prefix: &Prefix) -> Result<(), StoreError> {
        let slots = self.0.slots().await?;
        // All at once: a start waits for those that hang as for one of them.
        let mut tries = JoinSet::new();
        for master in slots.masters() {
            if let Some(tag) = tag_on(master, &slots) {
                let question = SelfTest::of_node(prefix, &tag);
                let (cluster, master) = (self.clone(), master.clone());
                tries.spawn(async move { cluster.try_on(master, &tag, &question).await });
            }
        }
        let (mut has_any, mut failure) = (false, None);
        while let Some(tried) = tries.join_next().await {
            match tried.unwrap_or_else(|_gone| Err(StoreError::new(StoreErrorKind::Interrupted))) {
                Ok(()) => has_any = true,
                Err(error) if concerns_its_keys_alone(error.kind()) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        match failure {
            Some(error) if !has_any => Err(error),
            Some(error) => {
                let causes = error.causes();
                trace::warn!(
                    reason = %error,
                    error = causes.as_deref(),
                    "a part of the store fails: the failure modes decide about its keys"
                );
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Tries it on a master that is known to have the slot of this tag; while that moves, on whomever it
    /// redirects to, as decisions are made there.
    async fn try_on(&self, master: Node, tag: &str, question: &SelfTest) -> Result<(), StoreError> {
        let slot = Slot::of_tag(tag.as_bytes());
        // With ASKING everywhere.
        let try_out = |lane: Lane, _| async move { lane.try_out(question).await };
        let reply = self.follow(Route::To(master.clone()), slot, try_out).await;
        match reply {
            Ok(reply) => SelfTest::read(&reply).map_err(|error| error.of_server(master)),
            // Whoever has answered so, or could not be connected to, is named already.
            Err(failed) => Err(failed.into()),
        }
    }
}

/// Whether it keeps nobody from starting, as long as other masters answer.
fn concerns_its_keys_alone(kind: StoreErrorKind) -> bool {
    is_about_the_node(kind) || kind == StoreErrorKind::Full
}

/// A tag of which a master has the slot. Slots come in all numbers before long.
fn tag_on(master: &Node, slots: &SlotMap) -> Option<String> {
    let mut tags = (0..1_000_000).map(|number: u32| number.to_string());
    tags.find(|tag| slots.master_of(Slot::of_tag(tag.as_bytes())) == Some(master))
}
