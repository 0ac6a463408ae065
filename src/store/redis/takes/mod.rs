//! Takes: the questions that nearly all requests are, each by a script as lean as it can be, alone or
//! together with others.
//!
//! A take is *plain* where one integer is all of its state, and its permits are taken at once and for good, or not at
//! all ([`PlainTake`](crate::algorithm::PlainTake)). A *run* are equal questions that share a trip, one behind the
//! other: one step of its script.
//!
//! | question | script in `lua/` | where it is asked | its reply | another form is told by |
//! |---|---|---|---|---|
//! | [`Take`] | `plain` | of a plain take alone | what is owed | an [error](super::error::is_other_form) |
//! | | `plain_batch` | of plain takes together | what is owed before each run of each key | -1 in its place |
//! | | `scaled_batch` | of takes, also of one, that would be plain, did their rates need no fraction: 30 a second | what is owed, in parts of a microsecond | -1 in its place |
//! | | `queue` | of takes of an algorithm together that are not plain, in a cluster of one key | verdicts, as few as tell all of a run | none: it reads all |
//! | [`PlainPack`]: plain takes in one key | `plain_pack` | of one alone, where all its takes hold each other up | what each take owes | -1 in place of all |
//! | | `plain_pack_batch` | of packs together, and of any other one alone | what each owes, or the whole pack, before each run of each key | -1 in its place |
//! | [`PlainSeveral`]: plain takes of several keys | `plain_several` | always | what each take of each run owes before it | -1 in its place |
//! | [`AnyTakes`]: all other takes, but of leases, and looks | the composed script | always | a verdict of each check | none: it reads all |
//!
//! Whatever else is asked, and a take alone that is not plain, is asked alone by the *composed script*, which is for
//! everything: `script` puts it together from those of the algorithms that are asked, and `reply` reads it.
//!
//! A key has *another form* where its script cannot read it: its state has a fraction or stands otherwise than the
//! script expects it, in a pack or not, as other rates of its policy have left it; or it holds nothing of ours. Then
//! nothing was taken. The question is asked once more, by the composed script, which reads all forms and says
//! what is wrong with a value of somebody else.

mod any_takes;
mod by_key;
mod msgpack;
mod names;
mod plain;
mod plain_batch;
mod plain_pack;
mod plain_several;
mod plain_takes;
mod queue;
mod take;

pub(super) use any_takes::AnyTakes;
pub(super) use plain_pack::PlainPack;
pub(super) use plain_several::PlainSeveral;
pub(super) use take::Take;

/// For so many plain takes one counts that is not plain. It takes the server about as long as two to five; and there
/// are few trips at a time, which are to take along as many as they can, while one of 128 of these holds up everybody
/// else for a millisecond at most.
const WEIGHT_UNLESS_PLAIN: usize = 4;
/// The same of one that would be plain, did its rate need no fraction.
const WEIGHT_IF_SCALED: usize = 2;
/// With more trips client and server wait for each other less. Of what keeps the server busier the smaller trips that
/// there are then cost more than that brings.
const MOST_TRIPS_IF_PLAIN: usize = 4;

/// The scripts that stand by themselves.
#[cfg(test)]
pub(super) const TEXTS: [&str; 6] = [
    plain::TEXT,
    plain_batch::TEXT,
    plain_batch::SCALED_TEXT,
    plain_pack::TEXT,
    plain_pack::BATCH_TEXT,
    plain_several::TEXT,
];
