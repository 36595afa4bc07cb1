//! How fast flows may be: limits by who, where to, over which path, when, and how much.
//!
//! A [`Throttle`] has limits by name. A connection opens a [`Flow`] there for each direction, and asks it before it moves octets. Limits are set and
//! removed while flows live, and hold from then on. Datagrams, which pass whole or not at all, have [`DatagramFlows`].

mod bucket;
mod datagrams;
mod flow;
mod lane;
mod lanes;
mod limit;
mod turns;

pub use bucket::Bucket;
pub use datagrams::DatagramFlows;
pub use flow::{Flow, Grant, LimitState, Throttle, Used};
pub use limit::{
    Budget, Direction, FlowKey, Hours, HoursError, Limit, MinuteOfDay, Moment, PathPattern, PathPatternError,
    PathSeen, Selector,
};
