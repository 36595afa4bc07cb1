use alloc::boxed::Box;

use polypath_units::Duration;
use polypath_units::named::{self, Kind, Named};

use super::{Duplication, GilbertElliott, Impairment, Jitter, JitterKind, Numbers, RandomLoss, Reordering};

/// An impairment by name, with its numbers if it takes any: `loss:1%`, `gilbert-elliott:1%,10%`.
///
/// A new one is one file and one line in [`Model::ALL`].
pub type Model = Named<Impairments>;

/// A name that is no impairment's, or numbers that make no sense.
pub type UnknownModel = named::UnknownPolicy<Impairments>;

/// The kind of policy that an impairment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairments;

/// How much later a packet arrives that is held back, if nobody says.
const HELD_BACK: Duration = Duration::from_millis(5);

impl Kind for Impairments {
    type Instance = dyn Impairment;
    type Given = ();
    type Parameter = Numbers;

    const WHAT: &'static str = "impairment";
    const SENSIBLE: &'static str = "such as 3, 1% or 5ms";
    const ALL: &'static [Model] = &[
        Model::with_parameter("loss", ("share", Numbers::new([0.01])), |_, numbers| {
            Box::new(RandomLoss { probability: numbers.get(0, 0.0) })
        }),
        Model::with_parameter("gilbert-elliott", ("p,r,1-h,1-k", Numbers::new([0.01, 0.1])), |_, numbers| {
            // As in netem: everything is lost in the bad state, nothing in the good one.
            let [p, r] = [0, 1].map(|at| numbers.get(at, 1.0 - numbers.get(0, 0.0)));
            Box::new(GilbertElliott::new(p, r, numbers.get(2, 1.0), numbers.get(3, 0.0)))
        }),
        Model::with_parameter("jitter", ("time", Numbers::new([0.001])), |_, numbers| {
            Box::new(Jitter::uniform(numbers.duration(0, Duration::ZERO)))
        }),
        Model::with_parameter("normal-jitter", ("deviation", Numbers::new([0.001])), |_, numbers| {
            let amount = numbers.duration(0, Duration::ZERO);
            Box::new(Jitter { kind: JitterKind::Normal, amount, keep_order: true })
        }),
        Model::with_parameter("reorder", ("share,time", Numbers::new([0.01])), |_, numbers| {
            let extra_delay = numbers.duration(1, HELD_BACK);
            Box::new(Reordering { probability: numbers.get(0, 0.0), extra_delay })
        }),
        Model::with_parameter("duplicate", ("share", Numbers::new([0.01])), |_, numbers| {
            Box::new(Duplication { probability: numbers.get(0, 0.0) })
        }),
    ];
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_model_is_found_by_its_name_with_its_numbers() {
        for model in Model::ALL {
            assert_eq!(Model::by_name(model.name()), Some(*model));
            assert_eq!(model.to_string(), model.name());
        }
        assert_eq!(Model::by_name("gilbert-elliott:1%,20%").unwrap().to_string(), "gilbert-elliott:0.01,0.2");
        let error = "loss:much".parse::<Model>().unwrap_err().to_string();
        assert!(
            error.starts_with("no impairment \"loss:much\"; expected one of loss[:share, such as 3"),
            "{error}"
        );
    }

    #[test]
    fn what_is_left_out_is_as_in_netem() {
        let model = Model::by_name("gilbert-elliott:20%").unwrap();
        assert_eq!(
            alloc::format!("{:?}", model.build()),
            alloc::format!("{:?}", GilbertElliott::new(0.2, 0.8, 1.0, 0.0))
        );
    }
}
