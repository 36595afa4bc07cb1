//! The filters of `ss`: `state established dst 10.0.0.0/8 and ( dport = :443 or sport != :80 )`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a filter looks at: a connection, a subflow or a listener.
#[derive(Clone, Debug)]
pub(super) struct Subject<'a> {
    /// By ss's name.
    pub(super) state: &'a str,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// Interfaces that it goes over.
    pub(super) interfaces: Vec<&'a str>,
}

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// States that were named, if any were.
    states: Option<Vec<&'static str>>,
    expression: Option<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Host { end: End, prefix: Option<(IpAddr, u8)>, port: Option<u16> },
    Port { end: End, comparison: Comparison, port: u16 },
    Interface { is: bool, name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Local,
    Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// Why a filter can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FilterError {
    #[error("the filter ends after \"{after}\"; expected {expected}")]
    Ends { after: String, expected: &'static str },
    #[error("\"{word}\" in the filter; expected {expected}")]
    Unexpected { word: String, expected: &'static str },
    #[error(
        "the filter has parentheses within more than {MOST_DEPTH} others; expected \"( dport = :443 or sport = :80 )\""
    )]
    TooDeep,
}

/// Parentheses within parentheses, and words of negation.
const MOST_DEPTH: usize = 64;

const STATE: &str = "a state of ss: established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, \
                     last-ack, closing, listening, or all, connected, synchronized, bucket, big";
const TEST: &str = "state, dst, src, dport, sport, dev, not or \"(\"";
const HOST: &str = "an address, a prefix or a port, such as 192.0.2.1, 10.0.0.0/8, [2001:db8::1]:443 or :443";
const PORT: &str = "a port such as :443";
const COMPARISON: &str = "=, !=, >=, <=, > or <";

const STATES: &[&str] = &[
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "closed",
    "close-wait",
    "last-ack",
    "listening",
    "closing",
];

impl Filter {
    /// Reads the words of a command line.
    pub(super) fn parse(words: &[String]) -> Result<Self, FilterError> {
        let mut parser = Parser { tokens: words.iter().flat_map(|word| tokens(word)).collect(), at: 0 };
        let mut filter = Self::default();
        while let Some(word) = parser.peek() {
            let is_named = match word {
                "state" => true,
                "exclude" => false,
                _ => break,
            };
            parser.at += 1;
            let group = states(&parser.next(STATE)?)?;
            let known =
                filter.states.get_or_insert_with(|| if is_named { Vec::new() } else { STATES.to_vec() });
            if is_named {
                known.extend(group);
            } else {
                known.retain(|state| !group.contains(state));
            }
        }
        if parser.peek().is_some() {
            filter.expression = Some(parser.any(0)?);
        }
        match parser.peek() {
            None => Ok(filter),
            Some(word) => Err(FilterError::Unexpected { word: word.into(), expected: "and, or, or the end" }),
        }
    }

    /// States were named, so that what they say of listeners holds.
    pub(super) const fn names_states(&self) -> bool {
        self.states.is_some()
    }

    pub(super) fn matches(&self, subject: &Subject<'_>) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&subject.state))
            && self.expression.as_ref().is_none_or(|expression| expression.matches(subject))
    }
}

/// The states that a word stands for.
fn states(word: &str) -> Result<Vec<&'static str>, FilterError> {
    let but = |without: &[&str]| STATES.iter().copied().filter(|state| !without.contains(state)).collect();
    Ok(match word {
        "all" => STATES.to_vec(),
        "connected" => but(&["closed", "listening"]),
        "synchronized" => but(&["closed", "listening", "syn-sent"]),
        "bucket" => vec!["syn-recv", "time-wait"],
        "big" => but(&["closed", "syn-recv", "time-wait"]),
        "listen" => vec!["listening"],
        "close" | "unconnected" => vec!["closed"],
        name => {
            let known = STATES.iter().copied().find(|state| *state == name);
            vec![known.ok_or_else(|| FilterError::Unexpected { word: name.into(), expected: STATE })?]
        }
    })
}

/// Cuts a word where an operator is, as `sport=:80` and `(dport` have it.
fn tokens(word: &str) -> Vec<String> {
    let kind = |letter: char| match letter {
        '(' | ')' => 0,
        '!' | '=' | '<' | '>' | '&' | '|' => 1,
        _ => 2,
    };
    let mut tokens: Vec<String> = Vec::new();
    for piece in word.split_whitespace() {
        let mut last = None;
        for letter in piece.chars() {
            let of_kind = kind(letter);
            match tokens.last_mut() {
                Some(token) if last == Some(of_kind) && of_kind != 0 => token.push(letter),
                _ => tokens.push(letter.into()),
            }
            last = Some(of_kind);
        }
    }
    tokens
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn next(&mut self, expected: &'static str) -> Result<String, FilterError> {
        let after = || FilterError::Ends { after: self.tokens.last().cloned().unwrap_or_default(), expected };
        let token = self.tokens.get(self.at).cloned().ok_or_else(after)?;
        self.at += 1;
        Ok(token)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is_next = self.peek().is_some_and(|word| words.contains(&word));
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut parts = vec![self.all(depth)?];
        while self.take(&["or", "|", "||"]) {
            parts.push(self.all(depth)?);
        }
        Ok(Expression::Any(parts))
    }

    /// Tests beside each other all have to hold, as with `and`.
    fn all(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut parts = vec![self.one(depth)?];
        while self.take(&["and", "&", "&&"])
            || self.peek().is_some_and(|word| !matches!(word, "or" | "|" | "||" | ")"))
        {
            parts.push(self.one(depth)?);
        }
        Ok(Expression::All(parts))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, FilterError> {
        if depth > MOST_DEPTH {
            return Err(FilterError::TooDeep);
        }
        let word = self.next(TEST)?;
        match word.as_str() {
            "not" | "!" => Ok(Expression::Not(Box::new(self.one(depth + 1)?))),
            "(" => {
                let inner = self.any(depth + 1)?;
                let closing = self.next("\")\"")?;
                match closing.as_str() {
                    ")" => Ok(inner),
                    _ => Err(FilterError::Unexpected { word: closing, expected: "\")\"" }),
                }
            }
            "dst" => self.host(End::Remote),
            "src" => self.host(End::Local),
            "dport" => self.port(End::Remote),
            "sport" => self.port(End::Local),
            "dev" => {
                let is = self.comparison()?.unwrap_or(Comparison::Equal);
                if !matches!(is, Comparison::Equal | Comparison::NotEqual) {
                    let word = self.tokens[self.at - 1].clone();
                    return Err(FilterError::Unexpected { word, expected: "= or != after dev" });
                }
                let name = self.next("the name of an interface")?;
                Ok(Expression::Interface { is: is == Comparison::Equal, name })
            }
            _ => Err(FilterError::Unexpected { word, expected: TEST }),
        }
    }

    fn comparison(&mut self) -> Result<Option<Comparison>, FilterError> {
        let Some(word) = self.peek() else { return Ok(None) };
        let comparison = match word {
            "=" | "==" | "eq" => Comparison::Equal,
            "!=" | "ne" | "neq" => Comparison::NotEqual,
            ">=" | "ge" | "geq" => Comparison::AtLeast,
            "<=" | "le" | "leq" => Comparison::AtMost,
            ">" | "gt" => Comparison::Above,
            "<" | "lt" => Comparison::Below,
            word if word.starts_with(['=', '!', '<', '>']) => {
                return Err(FilterError::Unexpected { word: word.into(), expected: COMPARISON });
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(comparison))
    }

    fn host(&mut self, end: End) -> Result<Expression, FilterError> {
        let comparison = self.comparison()?.unwrap_or(Comparison::Equal);
        let word = self.next(HOST)?;
        let host = host(&word, end).ok_or(FilterError::Unexpected { word, expected: HOST })?;
        match comparison {
            Comparison::Equal => Ok(host),
            Comparison::NotEqual => Ok(Expression::Not(Box::new(host))),
            _ => Err(FilterError::Unexpected { word: "<, >".into(), expected: "= or != before an address" }),
        }
    }

    fn port(&mut self, end: End) -> Result<Expression, FilterError> {
        let comparison = self.comparison()?.unwrap_or(Comparison::Equal);
        let word = self.next(PORT)?;
        let number = word.strip_prefix(':').unwrap_or(&word);
        let port =
            number.parse().map_err(|_| FilterError::Unexpected { word: word.clone(), expected: PORT })?;
        Ok(Expression::Port { end, comparison, port })
    }
}

/// `ADDRESS`, `ADDRESS/LENGTH`, `ADDRESS:PORT`, `[ADDRESS]:PORT`, `:PORT`; `*` is any address or port.
fn host(word: &str, end: End) -> Option<Expression> {
    let unmarked = ["inet:", "inet6:"].iter().find_map(|family| word.strip_prefix(family)).unwrap_or(word);
    let (addr, port) = match unmarked.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        // In brackets or after them, a prefix has its length.
        Some((addr, rest)) => match rest.split_once(':') {
            Some((length, port)) => (format!("{addr}{length}"), port),
            None => (format!("{addr}{rest}"), "*"),
        },
        None => match unmarked.split_once(':') {
            Some((addr, port)) if !port.contains(':') => (addr.to_string(), port),
            _ => (unmarked.to_string(), "*"),
        },
    };
    let port = match port {
        "*" => None,
        port => Some(port.parse().ok()?),
    };
    let prefix = match addr.as_str() {
        "" | "*" => None,
        addr => Some(prefix(addr)?),
    };
    (prefix.is_some() || port.is_some() || addr == "*").then_some(Expression::Host { end, prefix, port })
}

fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, length) = match text.split_once('/') {
        Some((addr, length)) => (addr, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().ok()?;
    let most = if addr.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(most);
    (length <= most).then_some((addr, length))
}

fn is_within(addr: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    let bits = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => u128::from(Ipv4Addr::to_bits(addr)) << 96,
        IpAddr::V6(addr) => Ipv6Addr::to_bits(addr),
    };
    let addr = addr.to_canonical();
    let differing = bits(addr) ^ bits(network);
    addr.is_ipv4() == network.is_ipv4() && differing.leading_zeros() >= u32::from(length)
}

impl Expression {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        let at = |end: End| match end {
            End::Local => subject.local,
            End::Remote => subject.remote,
        };
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(subject)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(subject)),
            Self::Not(inner) => !inner.matches(subject),
            Self::Host { end, prefix, port } => {
                if prefix.is_none() && port.is_none() {
                    return true;
                }
                at(*end).is_some_and(|at| {
                    prefix.is_none_or(|prefix| is_within(at.ip(), prefix))
                        && port.is_none_or(|port| port == at.port())
                })
            }
            Self::Port { end, comparison, port } => at(*end).is_some_and(|at| match comparison {
                Comparison::Equal => at.port() == *port,
                Comparison::NotEqual => at.port() != *port,
                Comparison::AtLeast => at.port() >= *port,
                Comparison::AtMost => at.port() <= *port,
                Comparison::Above => at.port() > *port,
                Comparison::Below => at.port() < *port,
            }),
            Self::Interface { is, name } => subject.interfaces.contains(&name.as_str()) == *is,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(&text.split(' ').filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>())
    }

    fn subject() -> Subject<'static> {
        Subject {
            state: "established",
            local: Some("10.1.2.3:40000".parse().unwrap()),
            remote: Some("[2001:db8::7]:443".parse().unwrap()),
            interfaces: vec!["wifi", "lte"],
        }
    }

    #[test]
    fn filters_of_ss_hold_as_they_do_there() {
        for (text, is_match) in [
            ("", true),
            ("state established", true),
            ("state connected", true),
            ("state synchronized", true),
            ("state listening", false),
            ("state syn-sent state established", true),
            ("exclude established", false),
            ("exclude listening", true),
            ("dst 2001:db8::7", true),
            ("dst [2001:db8::7]", true),
            ("dst [2001:db8::7]:443", true),
            ("dst [2001:db8::7]:444", false),
            ("dst 2001:db8::/32", true),
            ("dst [2001:db8::]/32:443", true),
            ("dst inet6:2001:db9::/32", false),
            ("dst :443", true),
            ("dst *:443", true),
            ("src 10.0.0.0/8", true),
            ("src 10.1.2.3:40000", true),
            ("src 10.1.2.3:1", false),
            ("src 11.0.0.0/8", false),
            ("src 0.0.0.0/0", true),
            ("dst 0.0.0.0/0", false),
            ("src != 10.0.0.0/8", false),
            ("sport = :40000", true),
            ("sport=:40000", true),
            ("sport :40000", true),
            ("dport != :443", false),
            ("dport >= 443 dport <= 443", true),
            ("sport gt :40000 or sport lt :40000", false),
            ("dev wifi", true),
            ("dev = lte", true),
            ("dev != wifi", false),
            ("dev eth0", false),
            ("not dev eth0", true),
            ("! dev eth0 && dport = :443", true),
            ("( dport = :80 or dport = :443 ) and src 10.0.0.0/8", true),
            ("dport = :443 or dport = :80 and sport = :1", true),
            ("(dport = :443 or dport = :80) and sport = :1", false),
            ("state established ( dport = :80 || not ( dport != :443 ) )", true),
        ] {
            let read = filter(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read.matches(&subject()), is_match, "{text}");
        }
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (text, expected) in [
            ("state up", "\"up\" in the filter; expected a state of ss: established"),
            ("state", "the filter ends after \"state\"; expected a state of ss"),
            ("dst", "the filter ends after \"dst\"; expected an address"),
            ("dst example.org", "\"example.org\" in the filter; expected an address"),
            ("dst 10.0.0.0/33", "\"10.0.0.0/33\" in the filter; expected an address"),
            ("dst 10.0.0.1:https", "\"10.0.0.1:https\" in the filter"),
            ("sport = :https", "\":https\" in the filter; expected a port such as :443"),
            ("sport =! :80", "\"=!\" in the filter; expected =, !="),
            ("sport = :70000", "\":70000\" in the filter; expected a port"),
            ("dst > 10.0.0.1", "expected = or != before an address"),
            ("dev > wifi", "\">\" in the filter; expected = or != after dev"),
            ("( dport = :80", "the filter ends after \":80\"; expected \")\""),
            ("dport = :80 )", "\")\" in the filter; expected and, or, or the end"),
            ("speed 3", "\"speed\" in the filter; expected state, dst"),
            (&"( ".repeat(100), "the filter has parentheses within more than 64"),
            (&"! ".repeat(100), "the filter has parentheses within more than 64"),
        ] {
            let error = filter(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
