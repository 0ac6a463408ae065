//! Clients that operators block for a time, in this process.

use std::sync::Arc;

use super::Limiter;
use super::deny_list::{Block, TooManyBlocks};
use crate::time::Clock;

impl Limiter {
    /// Refuses a client from the next request on, as if it were [listed](crate::Rules::deny), until the
    /// block is over by this clock. Returns the block with its number, and the one of the same client
    /// that it replaces.
    pub(crate) fn block(
        &self,
        block: Block,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Block, Option<Block>), TooManyBlocks> {
        self.0
            .rules
            .change_denied(|denied| denied.add(block, clock))
    }

    /// Ends a block, if there is one of this number.
    pub(crate) fn unblock(&self, id: u64) -> Option<Block> {
        self.0.rules.change_denied(|denied| denied.remove(id))
    }

    /// The blocks in force, in the order in which they were made.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.0.rules.load().denied.blocks().to_vec()
    }
}
