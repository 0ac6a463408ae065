//! Takes: the questions that nearly all requests are, each by a script as lean as it can be, alone or
//! together with others.

mod msgpack;
mod names;
mod plain;
mod plain_batch;
mod plain_pack;
mod plain_several;
mod plain_takes;
mod queue;
mod take;

pub(super) use plain_pack::PlainPack;
pub(super) use plain_several::PlainSeveral;
pub(super) use take::Take;

/// The scripts that stand by themselves.
#[cfg(test)]
pub(super) const TEXTS: [&str; 5] = [
    plain::TEXT,
    plain_batch::TEXT,
    plain_pack::TEXT,
    plain_pack::BATCH_TEXT,
    plain_several::TEXT,
];
