//! A change of a limit, as `polypath proxy set` asks for it: what is not named stays as it was.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, from_value, to_value};

use super::ThrottleText;

/// What is said beside the parts that are named, in a question to a proxy.
const WITHOUT: &str = "without";

#[derive(Args, Clone, Debug, Default)]
pub(in crate::command::proxy) struct Change {
    #[command(flatten)]
    named: ThrottleText,
    /// Parts that a limit is to have no more; what is neither named nor given up stays as it was. Repeatable
    #[arg(long, value_enum, value_name = "PART")]
    without: Vec<Part>,
}

/// A part of a limit, by its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    Rate,
    Burst,
    PerClient,
    #[value(alias = "clients")]
    Client,
    #[value(alias = "users")]
    User,
    #[value(alias = "hosts")]
    Host,
    #[value(alias = "ports")]
    Port,
    #[value(alias = "paths")]
    Path,
    #[value(alias = "peers")]
    Peer,
    Direction,
    Hours,
    Budget,
    Period,
    Then,
}

impl Part {
    /// As the file calls it.
    fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Burst => "burst",
            Self::PerClient => "per-client",
            Self::Client => "clients",
            Self::User => "users",
            Self::Host => "hosts",
            Self::Port => "ports",
            Self::Path => "paths",
            Self::Peer => "peers",
            Self::Direction => "direction",
            Self::Hours => "hours",
            Self::Budget => "budget",
            Self::Period => "period",
            Self::Then => "then",
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }
}

impl ThrottleText {
    /// What it says, by the words of its parts.
    fn parts(&self) -> Map<String, Value> {
        match to_value(self) {
            Ok(Value::Object(parts)) => parts,
            // Text can always be written.
            _ => Map::new(),
        }
    }

    /// What it says of a part, if anything: `clients 10.0.0.0/24 and 10.0.1.0/24`.
    fn said(&self, part: Part) -> Option<String> {
        let word = part.word();
        let value = match self.parts().get(word)? {
            Value::String(text) => text.clone(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" and "),
            // It is so; what is not so is left out.
            _ => return Some(word.into()),
        };
        Some(format!("{word} {value}"))
    }

    fn has_list(&self, part: Part) -> bool {
        self.parts().get(part.word()).is_some_and(Value::is_array)
    }
}

impl Change {
    /// The limit that it is of.
    pub(in crate::command::proxy) fn name(&self) -> &str {
        &self.named.name
    }

    /// As a proxy is asked for it.
    pub(in crate::command::proxy) fn question(&self) -> serde_json::Result<String> {
        let mut asked = to_value(&self.named)?;
        if let Some(asked) = asked.as_object_mut().filter(|_| !self.without.is_empty()) {
            asked.insert(WITHOUT.into(), to_value(&self.without)?);
        }
        serde_json::to_string(&asked)
    }

    /// What a proxy is asked for.
    pub(in crate::command::proxy) fn read(question: &str) -> serde_json::Result<Self> {
        let mut asked: Map<String, Value> = serde_json::from_str(question)?;
        let without = asked.remove(WITHOUT).map(from_value).transpose()?.unwrap_or_default();
        Ok(Self { named: from_value(Value::Object(asked))?, without })
    }

    /// The limit after it.
    pub(in crate::command::proxy) fn of(
        &self,
        before: Option<&ThrottleText>,
    ) -> Result<ThrottleText, String> {
        let name = self.name();
        if let Some(part) = self.without.iter().find(|part| self.named.said(**part).is_some()) {
            return Err(format!("{}: expected it either named or after --without, not both", part.word()));
        }
        let Some(before) = before else {
            return match self.without.first() {
                Some(part) => {
                    Err(format!("no limit is called {name}, which could give up its {}", part.word()))
                }
                None => Ok(self.named.clone()),
            };
        };
        if let Some(part) = self.without.iter().find(|part| before.said(**part).is_none()) {
            return Err(format!("limit {name} has no {} to be given up", part.word()));
        }
        if self.named_parts().next().is_none() && self.without.is_empty() {
            return Err(format!(
                "limit {name} stays as it is: expected what is to change, such as --rate 5mbit or --without budget"
            ));
        }
        let mut after = before.parts();
        after.extend(self.named.parts());
        self.given_up().for_each(|part| _ = after.remove(part.word()));
        from_value(Value::Object(after)).map_err(|error| error.to_string())
    }

    /// What it did, in one line: whether the limit is another one, and what of it stayed.
    pub(in crate::command::proxy) fn told(
        &self,
        after: &ThrottleText,
        (is_new, is_of_file): (bool, bool),
    ) -> String {
        let named = self.named_parts().filter_map(|part| after.said(part));
        // Once each, however often that was said.
        let given_up = Part::all().filter(|part| self.without.contains(part));
        let given_up = given_up.map(|part| format!("no {}", part.word()));
        let everybody = after.is_for_everybody().then(|| "for everybody".to_string());
        let said: Vec<String> = named.chain(given_up).chain(everybody).collect();
        let mut told = format!("limit {} is {}", self.name(), if is_new { "new" } else { "changed" });
        if is_of_file {
            told += " until the file is read again";
        }
        told += &format!(": {}", said.join(", "));
        let has_stayed = |part: &Part| self.named.said(*part).is_none() && after.said(*part).is_some();
        let stay: Vec<Part> = Part::all().filter(has_stayed).collect();
        if !stay.is_empty() {
            let verb = if matches!(stay[..], [only] if !after.has_list(only)) { "stays" } else { "stay" };
            let stay: Vec<String> = stay.into_iter().filter_map(|part| after.said(part)).collect();
            told += &format!(" ({} {verb})", stay.join(", "));
        }
        told
    }

    fn named_parts(&self) -> impl Iterator<Item = Part> {
        Part::all().filter(|part| self.named.said(*part).is_some())
    }

    /// Period and rate of a budget go with it.
    fn given_up(&self) -> impl Iterator<Item = Part> {
        let of_budget = [Part::Period, Part::Then]
            .into_iter()
            .filter(|part| self.without.contains(&Part::Budget) && self.named.said(*part).is_none());
        self.without.iter().copied().chain(of_budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESTS: &str = r#"{"name": "guests", "rate": "20mbit", "clients": ["10.0.0.0/24"], "budget": "8MB", "then": "1mbit"}"#;

    /// What `set` says with these words, of a limit that is there or not, and the limit then.
    fn set(words: &str, before: Option<&str>) -> Result<(String, ThrottleText), String> {
        #[derive(clap::Parser)]
        struct Set {
            #[command(flatten)]
            change: Change,
        }
        let words = ["set"].into_iter().chain(words.split(' '));
        let asked: Set = clap::Parser::try_parse_from(words).map_err(|error| error.to_string())?;
        let before: Option<ThrottleText> = before.map(|text| serde_json::from_str(text).expect("a limit"));
        let change = Change::read(&asked.change.question().expect("JSON")).expect("the same");
        let after = change.of(before.as_ref())?;
        Ok((change.told(&after, (before.is_none(), false)), after))
    }

    #[test]
    fn what_is_not_named_stays_and_the_answer_says_so() {
        for (words, before, expected) in [
            (
                "guests --rate 5mbit",
                Some(GUESTS),
                "limit guests is changed: rate 5mbit (clients 10.0.0.0/24, budget 8MB, then 1mbit stay)",
            ),
            (
                "guests --client 10.0.0.0/24 --client 10.0.1.0/24 --user ann --hours 22:00-06:00 --per-client",
                Some(GUESTS),
                "limit guests is changed: per-client, clients 10.0.0.0/24 and 10.0.1.0/24, users ann, hours 22:00-06:00 (rate 20mbit, budget 8MB, then 1mbit stay)",
            ),
            (
                "guests --without budget --without clients --without budget --without client",
                Some(GUESTS),
                "limit guests is changed: no clients, no budget, for everybody (rate 20mbit stays)",
            ),
            (
                "guests --then 2mbit --without rate",
                Some(GUESTS),
                "limit guests is changed: then 2mbit, no rate (clients 10.0.0.0/24, budget 8MB stay)",
            ),
            (
                "a --host a.example",
                Some(r#"{"name": "a", "rate": "5mbit", "ports": ["443"]}"#),
                "limit a is changed: hosts a.example (rate 5mbit, ports 443 stay)",
            ),
            ("gusts --rate 5mbit", None, "limit gusts is new: rate 5mbit, for everybody"),
            (
                "a --rate 5mbit --direction up --path lte",
                None,
                "limit a is new: rate 5mbit, paths lte, direction up",
            ),
        ] {
            let (told, after) = set(words, before).expect(words);
            assert_eq!(told, expected);
            assert!(after.limit().is_ok(), "{after:?}");
        }
        let (_, after) = set("guests --rate 5mbit", Some(GUESTS)).expect("a limit");
        assert_eq!(after, serde_json::from_str(&GUESTS.replace("20mbit", "5mbit")).expect("a limit"));
        let (_, after) = set("guests --without budget", Some(GUESTS)).expect("a limit");
        assert_eq!((after.budget, after.then), (None, None));
    }

    #[test]
    fn a_change_that_can_not_be_meant_is_refused() {
        for (words, before, expected) in [
            (
                "gusts --rate 5mbit --without budget",
                None,
                "no limit is called gusts, which could give up its budget",
            ),
            ("guests --without hours", Some(GUESTS), "limit guests has no hours to be given up"),
            ("guests", Some(GUESTS), "limit guests stays as it is: expected what is to change"),
            ("guests --rate 5mbit --without rate", Some(GUESTS), "rate: expected it either named or after"),
        ] {
            let error = set(words, before).expect_err(words);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn each_part_can_be_named_and_given_up() {
        let all = "a --rate 1mbit --burst 9KB --per-client --client 10.0.0.1 --user ann --host b --port 1 --path lte \
                   --peer 10.0.0.2 --direction up --hours 22:00-06:00 --budget 1GB --period 1h --then 1kbit";
        let (_, full) = set(all, None).expect("a limit");
        let full = serde_json::to_string(&full).expect("JSON");
        for part in Part::all() {
            let name = part.to_possible_value().expect("a name");
            let (told, after) =
                set(&format!("a --without {}", name.get_name()), Some(&full)).expect("a limit");
            assert!(told.starts_with(&format!("limit a is changed: no {} (", part.word())), "{told}");
            assert_eq!(after.said(part), None);
        }
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        let error = Change::read(r#"{"name": "a", "speed": "1mbit"}"#).expect_err("a mistake");
        assert!(error.to_string().starts_with("unknown field `speed`"), "{error}");
    }
}
