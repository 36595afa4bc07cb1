//! Links between real interfaces, in the words of a scenario.

use std::path::Path;

use polypath_config::{FileError, Policies, Source, read};
use polypath_link::queue::DROP_TAIL;
use polypath_link::{LinkConfig, middlebox};
use polypath_units::Duration;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::LinkFile;
use super::links::{Directions, directions};
use polypath_config::quantity::Span;

/// Links to emulate between interfaces, as a file describes them:
///
/// ```toml
/// seed = 7                # default 1
/// duration = "10min"      # default: until it is stopped
///
/// [[links]]
/// name = "wifi"
/// between = ["eth0", "eth1"]
/// rate = "40mbit"
/// delay = "10ms"
/// limit = "80ms"
/// loss = "0.1%"
/// reverse = { rate = "10mbit" }
///
/// [[links.change]]
/// at = "5s"
/// down = true
/// ```
///
/// The words of `[[links]]` are those of a [`Scenario`](super::Scenario); but `addresses` has no meaning here, and `discipline` is drop-tail
/// alone.
#[derive(Clone, Debug)]
pub struct InterfaceLinks {
    /// Seed of everything random.
    pub seed: u64,
    /// How long, if it ends by itself.
    pub duration: Option<Duration>,
    /// The links.
    pub links: Vec<InterfaceLink>,
}

/// A link between two interfaces.
#[derive(Clone, Debug)]
pub struct InterfaceLink {
    /// What it is called.
    pub name: String,
    /// The two interfaces.
    pub between: [String; 2],
    /// From the first interface to the second.
    pub forward: LinkConfig,
    /// From the second interface to the first.
    pub backward: LinkConfig,
    /// From the first interface to the second.
    pub middleboxes: Vec<middlebox::Policy>,
}

/// Links that are emulated in real time between interfaces.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct InterfacesFile {
    /// Seed of everything random. Default 1.
    #[serde(default = "super::defaults::seed")]
    seed: u64,
    /// How long. Default: until it is stopped.
    duration: Option<Span>,
    /// Links between two interfaces each.
    links: Vec<LinkFile>,
}

impl InterfaceLinks {
    /// Reads and checks a file, which may name these policies.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn load(path: impl AsRef<Path>, policies: &Policies) -> Result<Self, FileError> {
        let path = path.as_ref();
        Self::parse(path, &super::read_text(path, "links between interfaces")?, policies)
    }

    /// Checks what was already read; `path` is for messages.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(path: impl AsRef<Path>, text: &str, policies: &Policies) -> Result<Self, FileError> {
        let source = Source { file: &path.as_ref().display().to_string(), text };
        let file: InterfacesFile = read(source)?;
        if file.links.is_empty() {
            return Err(source.wrong("links", "is empty; expected a link at least"));
        }
        if file.duration.is_some_and(|duration| duration.0.is_zero()) {
            return Err(source.wrong("duration", "is zero; expected a time such as \"60s\""));
        }
        let mut links: Vec<InterfaceLink> = Vec::new();
        for (index, link) in file.links.iter().enumerate() {
            let place = format!("links[{index}]");
            if link.addresses.is_some() {
                let message = "means nothing between interfaces; expected none";
                return Err(source.wrong(format!("{place}.addresses"), message));
            }
            for (end, name) in link.between.iter().enumerate() {
                let is_elsewhere = links.iter().any(|other| other.between.contains(name));
                if is_elsewhere || (end == 1 && link.between[0] == *name) {
                    let message =
                        format!("\"{name}\" is taken; expected an interface that ends no other link");
                    return Err(source.wrong(format!("{place}.between[{end}]"), message));
                }
            }
            let Directions { forward, backward, boxes } = directions(source, policies, &place, link, None)?;
            for (config, key) in [(&forward, "discipline"), (&backward, "reverse.discipline")] {
                if config.discipline != DROP_TAIL {
                    let message = format!(
                        "\"{}\" holds packets, not frames; expected \"{DROP_TAIL}\"",
                        config.discipline
                    );
                    return Err(source.wrong(format!("{place}.{key}"), message));
                }
            }
            let default_name = || format!("{}-{}", link.between[0], link.between[1]);
            links.push(InterfaceLink {
                name: link.name.clone().unwrap_or_else(default_name),
                between: link.between.clone(),
                forward,
                backward,
                middleboxes: boxes,
            });
        }
        Ok(Self { seed: file.seed, duration: file.duration.map(|span| span.0), links })
    }
}

#[cfg(test)]
mod tests {
    use polypath_link::queue;
    use polypath_units::BitRate;

    use super::*;

    const FILE: &str = r#"
seed = 3
[[links]]
between = ["eth0", "eth1"]
rate = "40mbit"
limit = "80ms"
reverse = { rate = "10mbit" }
middleboxes = ["strip-mptcp-syn"]
[[links.change]]
at = "5s"
down = true
[[links]]
name = "lte"
between = ["eth2", "eth3"]
delay = "10ms"
"#;

    #[test]
    fn words_of_a_scenario_describe_links_between_interfaces() {
        let links = InterfaceLinks::parse("a.toml", FILE, &Policies::default()).unwrap();
        assert_eq!((links.seed, links.duration, links.links.len()), (3, None, 2));
        let wifi = &links.links[0];
        assert_eq!((wifi.name.as_str(), wifi.middleboxes.len()), ("eth0-eth1", 1));
        assert_eq!(wifi.forward.rate, Some(BitRate::from_mbps(40)));
        assert_eq!(wifi.backward.rate, Some(BitRate::from_mbps(10)));
        assert_eq!(wifi.backward.schedule.len(), 1);
        assert_eq!(links.links[1].name, "lte");
    }

    #[test]
    fn a_queue_that_holds_no_frames_is_refused() {
        let theirs = queue::Policy::new("theirs", |settings| DROP_TAIL.build_for(settings));
        let policies = Policies::default().with(theirs);
        let message = "\"theirs\" holds packets, not frames; expected \"drop-tail\"";
        for (from, to, place) in [
            ("limit = \"80ms\"", "discipline = \"theirs\"", "a.toml:6: links[0].discipline: "),
            (
                "reverse = {",
                "reverse = { discipline = \"theirs\",",
                "a.toml:7: links[0].reverse.discipline: ",
            ),
        ] {
            let text = FILE.replacen(from, to, 1);
            let error = InterfaceLinks::parse("a.toml", &text, &policies).unwrap_err().to_string();
            assert_eq!(error, format!("{place}{message}"));
        }
        let text = FILE.replacen("limit = \"80ms\"", "discipline = \"codel\"", 1);
        let error = InterfaceLinks::parse("a.toml", &text, &policies).unwrap_err().to_string();
        assert!(error.starts_with("a.toml:6: links[0].discipline: no queue discipline \"codel\""), "{error}");
    }

    #[test]
    fn mistakes_are_found_with_line_and_key() {
        for (from, to, message) in [
            ("eth2", "eth1", "a.toml:14: links[1].between[0]: \"eth1\" is taken"),
            ("\"40mbit\"", "\"fast\"", "a.toml:5: links[0].rate: \"fast\""),
            ("delay", "dely", "a.toml:15: links[1].dely: unknown field"),
            ("strip-mptcp-syn", "stripper", "a.toml:8: links[0].middleboxes[0]: no middlebox \"stripper\""),
            ("seed = 3", "duration = \"0s\"", "a.toml:2: duration: is zero"),
            ("down = true", "", "a.toml:9: links[0].change[0]: changes nothing"),
        ] {
            let text = FILE.replacen(from, to, 1);
            let error = InterfaceLinks::parse("a.toml", &text, &Policies::default()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
