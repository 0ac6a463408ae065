//! The self-test at start-up, on every master, as each has users of its own.

use tokio::task::JoinSet;

use super::slots::{Node, Slot};
use super::{Cluster, Route, is_about_the_node, is_moved};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connection::{Failed, ReconnectingConnection};
use crate::store::redis::keys::Prefix;
use crate::store::redis::self_test::SelfTest;
use crate::trace;

/// How many slots are tried on a server that does not answer CLUSTER SLOTS. The tags "0", "1" and so on
/// are spread over the slots.
const TRIED_SLOTS: u32 = 8;

impl Cluster {
    /// Runs the self-test. A master that gives no answer does not keep a service from starting, as
    /// long as others answer.
    pub(in crate::store::redis) async fn try_out(&self, prefix: &Prefix) -> Result<(), StoreError> {
        let slots = self.0.slots().await?;
        if let (Some(why), [endpoint]) = (slots.why_unassigned(), &slots.masters()[..]) {
            return self.try_on_endpoint(endpoint, why, prefix).await;
        }
        // Concurrently, so that a start does not wait for one hanging master after the other.
        let mut tries = JoinSet::new();
        for (master, tag) in slots.tags() {
            let question = SelfTest::of_node(prefix, &tag);
            let (cluster, master) = (self.clone(), master.clone());
            tries.spawn(async move { cluster.try_on(master, &tag, &question).await });
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
                    reason = %error.kind(),
                    error = causes.as_deref(),
                    "rate limiting: a part of the Redis cluster fails: the failure modes of the \
                     policies decide about its keys"
                );
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Tries it on a server that does not answer CLUSTER SLOTS. An endpoint in front of a cluster answers
    /// for all slots. A cluster node whose user lacks the permission redirects, and is refused: each
    /// question would take one more round trip.
    async fn try_on_endpoint(
        &self,
        endpoint: &Node,
        why_unassigned: &StoreError,
        prefix: &Prefix,
    ) -> Result<(), StoreError> {
        let connection = self.0.connection(endpoint)?;
        for number in 0..TRIED_SLOTS {
            let question = SelfTest::of_node(prefix, &number.to_string());
            // It redirects nobody.
            match connection.try_out(&question, false).await {
                Ok(reply) => SelfTest::read(&reply).map_err(|error| error.of_server(endpoint))?,
                Err(Failed::Answer(error)) if is_moved(&error) => {
                    return Err(why_unassigned.clone());
                }
                Err(failed) => return Err(StoreError::from(failed).of_server(endpoint)),
            }
        }
        Ok(())
    }

    /// Tries it on a master that has the slot of this tag; while that slot moves, on the node that
    /// it redirects to, where decisions are made as well.
    async fn try_on(&self, master: Node, tag: &str, question: &SelfTest) -> Result<(), StoreError> {
        let slot = Slot::of_tag(tag.as_bytes());
        // Tries ASKING on all nodes.
        let try_out = |connection: ReconnectingConnection, _| async move {
            connection.try_out(question, true).await
        };
        let reply = self.follow(Route::To(master.clone()), slot, try_out).await;
        match reply {
            Ok(reply) => SelfTest::read(&reply).map_err(|error| error.of_server(master)),
            // The error names the node that has answered so, or could not be reached.
            Err(failed) => Err(failed.into()),
        }
    }
}

/// Whether the error does not keep a service from starting, as long as other masters answer.
fn concerns_its_keys_alone(kind: StoreErrorKind) -> bool {
    is_about_the_node(kind) || kind == StoreErrorKind::Full
}
