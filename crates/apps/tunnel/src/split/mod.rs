//! Which path the next packet takes: a [`Splitter`] sees the paths and chooses one. One policy a file.
//!
//! Splitters are chosen by name, and a program may add its own:
//!
//! ```
//! # mod polypath { pub use polypath_tunnel as tunnel; pub use polypath_units as units; }
//! use polypath::tunnel::split::{PathView, Split};
//! use polypath::units::{BitRate, Duration};
//!
//! let paths = [(300, 80), (500, 43)].map(|(rate, delay)| PathView {
//!     rate: BitRate::from_kbps(rate),
//!     delay: Duration::from_millis(delay),
//! });
//! let mut splitter = "send-vector:8".parse::<Split>()?.build();
//! let chosen: Vec<usize> = (0..8).filter_map(|_| splitter.choose(&paths)).collect();
//! assert_eq!(chosen, [0, 1, 0, 1, 1, 0, 1, 1]);
//! # Ok::<(), polypath::units::named::UnknownPolicy<polypath::tunnel::split::Splitters>>(())
//! ```

mod policy;
mod round_robin;
mod send_vector;
mod smooth_weighted;
mod splitter;

pub use policy::{Split, Splitters};
pub use send_vector::SendVector;
pub use splitter::{PathView, Splitter};
