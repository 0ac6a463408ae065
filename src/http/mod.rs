//! HTTP: what is read of a request, and what is answered.

mod cost;
pub(crate) mod extract;
mod field;
mod route;

pub use self::cost::HeaderCost;
pub use self::route::Route;
