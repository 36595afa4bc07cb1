//! In which quality a segment is fetched.

mod bola;
mod measured_speed;
mod registry;
mod robust_mpc;
mod view;

pub use self::registry::{AdaptationPolicy, Adaptations};
pub use self::view::{Adaptation, View};
