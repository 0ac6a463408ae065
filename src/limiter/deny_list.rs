//! `DenyList`: the clients that are refused, for good or for a time. `Block`: one that an operator
//! refuses for a time.
#![cfg_attr(
    not(feature = "operator"),
    allow(dead_code, reason = "only an operator blocks clients for a time")
)]

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::access_list::AccessList;
use crate::key::Subject;
use crate::request::AddressExtractor;
use crate::time::{Clock, Micros};

/// More belong on the list of the rules, which processes share.
pub(crate) const MOST_BLOCKS: usize = 100;

/// The clients that are refused: those that the rules list, and those that are blocked for a time.
#[derive(Clone)]
pub(super) struct DenyList {
    listed: Arc<AccessList>,
    /// In the order in which they were made.
    blocks: Vec<Block>,
    last_id: u64,
    /// The listed and the blocked clients in one list, so that a request needs one lookup.
    all: Arc<AccessList>,
    first_end: Option<End>,
}

/// When the first block ends, by the clock of the operator who blocked last.
#[derive(Clone)]
struct End {
    clock: Arc<dyn Clock>,
    at: Micros,
}

/// A client that is refused for a time.
#[derive(Clone)]
pub(crate) struct Block {
    /// Unique among the blocks of a limiter.
    pub(crate) id: u64,
    pub(crate) client: BlockedClient,
    pub(crate) reason: String,
    /// Who blocked it, if that is known.
    pub(crate) by: Option<String>,
    pub(crate) until: Micros,
}

#[derive(Clone)]
pub(crate) enum BlockedClient {
    Addresses {
        by: Arc<dyn AddressExtractor>,
        /// From [`of_clients`](super::access_list::of_clients).
        range: RangeInclusive<IpAddr>,
        /// As the operator wrote it.
        text: String,
    },
    /// Refused by every policy with this key. The operator named it as a key of this policy.
    Key { policy: String, subject: Subject },
}

/// There are [`MOST_BLOCKS`] already.
pub(crate) struct TooManyBlocks;

impl BlockedClient {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Addresses { range, .. }, Self::Addresses { range: other, .. }) => range == other,
            (Self::Key { subject, .. }, Self::Key { subject: other, .. }) => subject == other,
            _ => false,
        }
    }
}

impl DenyList {
    pub(super) fn new(listed: AccessList) -> Self {
        let listed = Arc::new(listed);
        Self {
            all: Arc::clone(&listed),
            listed,
            blocks: Vec::new(),
            last_id: 0,
            first_end: None,
        }
    }

    /// All clients that are refused.
    #[inline]
    pub(super) fn all(&self) -> &Arc<AccessList> {
        &self.all
    }

    /// Whether a block is over and still in force.
    #[inline]
    pub(super) fn is_outdated(&self) -> bool {
        let first_end = self.first_end.as_ref();
        first_end.is_some_and(|end| end.clock.now() >= end.at)
    }

    /// Ends the blocks that are over.
    pub(super) fn update(&mut self) {
        if self.is_outdated()
            && let Some(End { clock, .. }) = self.first_end.clone()
        {
            let now = clock.now();
            self.blocks.retain(|block| now < block.until);
            self.join(clock);
        }
    }

    /// Replaces the clients that are refused for good.
    pub(super) fn set_listed(&mut self, clients: AccessList) {
        let before = std::mem::replace(self, Self::new(clients));
        self.succeed(&before);
    }

    /// Takes over the blocks of the list before.
    pub(super) fn succeed(&mut self, before: &Self) {
        self.last_id = before.last_id;
        if let Some(End { clock, .. }) = &before.first_end {
            self.blocks.clone_from(&before.blocks);
            self.join(Arc::clone(clock));
        }
    }

    /// Adds a block. One of the same client is replaced, and returned.
    pub(super) fn add(
        &mut self,
        mut block: Block,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Block, Option<Block>), TooManyBlocks> {
        self.update();
        let mut blocks = self.blocks.iter();
        let before = blocks.position(|before| before.client.is_same(&block.client));
        if before.is_none() && self.blocks.len() >= MOST_BLOCKS {
            return Err(TooManyBlocks);
        }
        let before = before.map(|position| self.blocks.remove(position));
        self.last_id += 1;
        block.id = self.last_id;
        self.blocks.push(block.clone());
        self.join(Arc::clone(clock));
        Ok((block, before))
    }

    /// Removes the block with this number.
    pub(super) fn remove(&mut self, id: u64) -> Option<Block> {
        self.update();
        let End { clock, .. } = self.first_end.clone()?;
        let position = self.blocks.iter().position(|block| block.id == id)?;
        let block = self.blocks.remove(position);
        self.join(clock);
        Some(block)
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    fn join(&mut self, clock: Arc<dyn Clock>) {
        let mut all = AccessList::clone(&self.listed);
        let mut readers: Vec<(&Arc<dyn AddressExtractor>, Vec<_>)> = Vec::new();
        for block in &self.blocks {
            match &block.client {
                BlockedClient::Key { subject, .. } => all.add_subject(*subject),
                BlockedClient::Addresses { by, range, .. } => {
                    let known = readers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, by));
                    match known {
                        Some((_, ranges)) => ranges.push(range.clone()),
                        None => readers.push((by, vec![range.clone()])),
                    }
                }
            }
        }
        // Each extractor reads a request's address once, however many blocks there are.
        for (by, ranges) in readers {
            all = all.clients(Arc::clone(by), ranges.into_iter().collect());
        }
        self.all = Arc::new(all);
        let first_end = self.blocks.iter().map(|block| block.until).min();
        self.first_end = first_end.map(|at| End { clock, at });
    }
}
