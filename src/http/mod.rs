//! HTTP: what is read of a request, and what is answered.

mod cost;
mod field;
mod route;

pub use self::cost::HeaderCost;
pub use self::route::Route;
