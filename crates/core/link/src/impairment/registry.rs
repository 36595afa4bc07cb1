use alloc::boxed::Box;

use polypath_units::Duration;
use polypath_units::named::{self, Kind, Named};

use super::numbers::is_share;
use super::{Duplication, GilbertElliott, Impairment, Jitter, JitterKind, Numbers, RandomLoss, Reordering};

/// An impairment by name, with its numbers if it takes any: `loss:1%`, `gilbert-elliott:1%,10%`.
///
/// A new one is one file and one line in [`Policy::ALL`].
pub type Policy = Named<Impairments>;

/// A name that is no impairment's, or numbers that make no sense.
pub type UnknownPolicy = named::UnknownPolicy<Impairments>;

/// The kind of policy that an impairment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairments;

impl Kind for Impairments {
    type Instance = dyn Impairment;
    type Given = ();
    type Parameter = Numbers;

    const WHAT: &'static str = "impairment";
    const ALL: &'static [Policy] = &[
        Policy::with_parameter("loss", ("share", Numbers::new([0.01])), SHARE, |_, numbers| {
            Box::new(RandomLoss { probability: numbers.get(0, 0.0) })
        }),
        Policy::with_parameter(
            "gilbert-elliott",
            ("p,r,1-h,1-k", Numbers::new([0.01, 0.1])),
            ("one to four shares of 0 to 1 such as 1%", |numbers| numbers.are_shares(4)),
            |_, numbers| {
                // As in netem: everything is lost in the bad state, nothing in the good one.
                let [p, r] = [0, 1].map(|at| numbers.get(at, 1.0 - numbers.get(0, 0.0)));
                Box::new(GilbertElliott::new(p, r, numbers.get(2, 1.0), numbers.get(3, 0.0)))
            },
        ),
        Policy::with_parameter("jitter", ("time", Numbers::new([0.001])), TIME, |_, numbers| {
            Box::new(Jitter::uniform(numbers.duration(0, Duration::ZERO)))
        }),
        Policy::with_parameter("normal-jitter", ("deviation", Numbers::new([0.001])), TIME, |_, numbers| {
            let amount = numbers.duration(0, Duration::ZERO);
            Box::new(Jitter { kind: JitterKind::Normal, amount, keep_order: true })
        }),
        Policy::with_parameter(
            "reorder",
            ("share,time", Numbers::new([0.01])),
            ("a share of 0 to 1 such as 1%, then a time such as 5ms", |numbers| {
                numbers.as_slice().len() <= 2 && is_share(numbers.get(0, 0.0))
            }),
            |_, numbers| {
                let extra_delay = numbers.duration(1, Reordering::EXTRA_DELAY);
                Box::new(Reordering { probability: numbers.get(0, 0.0), extra_delay })
            },
        ),
        Policy::with_parameter("duplicate", ("share", Numbers::new([0.01])), SHARE, |_, numbers| {
            Box::new(Duplication { probability: numbers.get(0, 0.0) })
        }),
    ];
}

const SHARE: (&str, fn(Numbers) -> bool) = ("of 0 to 1 such as 1%", |numbers| numbers.are_shares(1));
/// What is read is never negative.
const TIME: (&str, fn(Numbers) -> bool) = ("such as 5ms", |numbers| numbers.as_slice().len() == 1);

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use polypath_units::named::PolicyMistake;

    use super::*;

    #[test]
    fn every_model_is_found_by_its_name_with_its_numbers() {
        for model in Policy::ALL {
            assert_eq!(Policy::by_name(model.name()).as_ref(), Some(model));
            assert_eq!(model.to_string(), model.name());
        }
        assert_eq!(
            Policy::by_name("gilbert-elliott:1%,20%").unwrap().to_string(),
            "gilbert-elliott:0.01,0.2"
        );
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused_and_it_is_said_why() {
        let error = "loss:2".parse::<Policy>().unwrap_err().to_string();
        assert_eq!(
            error,
            "the impairment of \"loss:2\" has a wrong parameter; expected loss[:share, of 0 to 1 such as 1%, 0.01 by default]"
        );
        let too_many =
            ["loss:1%,1%", "jitter:1ms,2ms", "reorder:1%,1ms,1", "duplicate:1%,1%", "loss:0,0,0,0,0"];
        let too_much = [
            "loss:101%",
            "gilbert-elliott:2",
            "gilbert-elliott:1%,1%,1%,1.5",
            "reorder:7,1ms",
            "duplicate:3",
        ];
        let no_numbers =
            ["loss:", "loss:much", "loss:nan", "loss:-1%", "jitter:inf", "normal-jitter:-1ms", "reorder:nan"];
        for text in too_many.into_iter().chain(too_much).chain(no_numbers) {
            let error = text.parse::<Policy>().unwrap_err();
            assert_eq!(error.mistake(), PolicyMistake::Parameter, "{text}");
            let (name, _) = text.split_once(':').unwrap();
            assert!(error.expected().starts_with(name), "{text}: {error}");
        }
        for text in ["loss:0", "loss:100%", "gilbert-elliott:1,1,1,1", "reorder:1", "jitter:0", "duplicate:1"]
        {
            assert!(text.parse::<Policy>().is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_left_out_is_as_in_netem() {
        let model = Policy::by_name("gilbert-elliott:20%").unwrap();
        assert_eq!(
            alloc::format!("{:?}", model.build()),
            alloc::format!("{:?}", GilbertElliott::new(0.2, 0.8, 1.0, 0.0))
        );
    }
}
