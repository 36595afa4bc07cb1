//! The blocks of JSON that both ends exchange: the parameters of a test, and what each end measured.
//!
//! Names and kinds of values are those of iperf3; what it does not know it leaves alone.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::parameters::{Amount, DATAGRAM_BYTES, Direction, MAX_STREAMS, Parameters, Protocol};
use super::printed;
use super::wire::WireError;

/// A number, written without a point where it is whole, as iperf3 wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Number {
    pub(super) fn whole(value: u64) -> Self {
        Self(value as f64)
    }

    fn is_zero(&self) -> bool {
        self.0 == 0.0
    }

    /// Nothing below zero, and no more than there is room for.
    pub(super) fn count(self) -> u64 {
        self.0 as u64
    }

    /// Not below zero, nor more than has room in a column.
    pub(super) fn real(self) -> f64 {
        if self.0.is_finite() { self.0.clamp(0.0, 1e9) } else { 0.0 }
    }

    fn time(self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.0).ok()
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The parameters of a test, from the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Offer {
    #[serde(skip_serializing_if = "is_false")]
    tcp: bool,
    #[serde(skip_serializing_if = "is_false")]
    udp: bool,
    #[serde(skip_serializing_if = "is_false")]
    sctp: bool,
    omit: Number,
    time: Number,
    num: Number,
    blockcount: Number,
    #[serde(rename = "MSS", skip_serializing_if = "Number::is_zero")]
    mss: Number,
    #[serde(skip_serializing_if = "is_false")]
    nodelay: bool,
    parallel: Number,
    #[serde(skip_serializing_if = "is_false")]
    reverse: bool,
    #[serde(skip_serializing_if = "is_false")]
    bidirectional: bool,
    #[serde(skip_serializing_if = "is_false")]
    mptcp: bool,
    #[serde(skip_serializing_if = "Number::is_zero")]
    window: Number,
    len: Number,
    #[serde(skip_serializing_if = "Number::is_zero")]
    bandwidth: Number,
    pacing_timer: Number,
    #[serde(skip_serializing_if = "Number::is_zero")]
    burst: Number,
    #[serde(rename = "TOS", skip_serializing_if = "Number::is_zero")]
    tos: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion: Option<String>,
    #[serde(skip_serializing_if = "Number::is_zero")]
    get_server_output: Number,
    #[serde(skip_serializing_if = "Number::is_zero")]
    udp_counters_64bit: Number,
    #[serde(skip_serializing_if = "Number::is_zero")]
    zerocopy: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_version: Option<String>,
}

impl From<&Parameters> for Offer {
    fn from(parameters: &Parameters) -> Self {
        let flag = |is_set: bool| Number::whole(is_set.into());
        let (mut time, mut num, mut blockcount) = Default::default();
        match parameters.amount {
            Amount::Time(limit) => time = Number(limit.as_secs_f64()),
            Amount::Bytes(bytes) => num = Number::whole(bytes),
            Amount::Blocks(blocks) => blockcount = Number::whole(blocks),
        }
        Self {
            tcp: !parameters.is_udp(),
            udp: parameters.is_udp(),
            sctp: false,
            omit: Number(parameters.omit.as_secs_f64()),
            time,
            num,
            blockcount,
            mss: Number::whole(parameters.mss_bytes.unwrap_or(0).into()),
            nodelay: parameters.no_delay,
            parallel: Number::whole(parameters.streams.into()),
            reverse: parameters.direction == Direction::Download,
            bidirectional: parameters.direction == Direction::Both,
            mptcp: parameters.wants_mptcp,
            window: Number::whole(parameters.window_bytes.unwrap_or(0)),
            len: Number::whole(parameters.block_bytes() as u64),
            bandwidth: Number::whole(parameters.rate_limit.unwrap_or(0)),
            // Microseconds, and what iperf3 sends without a choice. Timers decide here.
            pacing_timer: Number::whole(1000),
            burst: Number::whole(if parameters.burst > 1 { parameters.burst.into() } else { 0 }),
            tos: Number::whole(parameters.tos.into()),
            title: parameters.title.clone(),
            extra_data: parameters.extra_data.clone(),
            congestion: parameters.congestion.clone(),
            get_server_output: flag(parameters.wants_server_output),
            udp_counters_64bit: flag(parameters.has_wide_counters),
            zerocopy: flag(parameters.is_zero_copy),
            client_version: Some(concat!("polypath ", env!("CARGO_PKG_VERSION")).into()),
        }
    }
}

impl Offer {
    pub(super) fn read(block: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(block).map_err(|error| WireError::Json(error.to_string()))
    }

    /// What the client asks for, for a person to read if it can't be had. Bounds are left to [`Parameters::check`].
    pub(super) fn parameters(self, interval: Option<Duration>) -> Result<Parameters, String> {
        if self.sctp {
            return Err("a test over SCTP; expected TCP or UDP".into());
        }
        let time = |number: Number, name: &str| {
            number.time().ok_or_else(|| format!("{name} of {} seconds; expected a time", number.0))
        };
        let given = |number: Number| Some(number.count()).filter(|value| *value > 0);
        let narrow = |number: Number| given(number).map(|value| u16::try_from(value).unwrap_or(u16::MAX));
        Ok(Parameters {
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            streams: u32::try_from(self.parallel.count()).unwrap_or(MAX_STREAMS + 1),
            direction: match (self.bidirectional, self.reverse) {
                (true, _) => Direction::Both,
                (_, true) => Direction::Download,
                _ => Direction::Upload,
            },
            block_bytes: given(self.len).map(|bytes| bytes.min(1 << 30) as usize),
            amount: match (given(self.num), given(self.blockcount)) {
                (Some(bytes), _) => Amount::Bytes(bytes),
                (_, Some(blocks)) => Amount::Blocks(blocks),
                _ => Amount::Time(time(self.time, "a test")?),
            },
            omit: time(self.omit, "an omitted beginning")?,
            interval,
            rate_limit: given(self.bandwidth),
            burst: given(self.burst).map_or(1, |burst| u32::try_from(burst).unwrap_or(u32::MAX)),
            congestion: self.congestion,
            window_bytes: given(self.window),
            mss_bytes: narrow(self.mss),
            no_delay: self.nodelay,
            tos: u8::try_from(self.tos.count()).unwrap_or(0),
            has_wide_counters: self.udp_counters_64bit.count() > 0,
            is_zero_copy: self.zerocopy.count() > 0,
            wants_mptcp: self.mptcp,
            wants_server_output: self.get_server_output.count() > 0,
            title: self.title,
            extra_data: self.extra_data,
        })
    }
}

/// Bytes of a datagram that fit into a segment of the control connection.
pub(super) fn datagram_bytes(mss_bytes: Option<u32>) -> usize {
    let fitting = mss_bytes.filter(|bytes| *bytes > 0).map_or(1460, |bytes| bytes as usize);
    fitting.clamp(*DATAGRAM_BYTES.start(), *DATAGRAM_BYTES.end())
}

/// What one end measured, as it goes to the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Exchanged {
    pub(super) cpu_util_total: Number,
    pub(super) cpu_util_user: Number,
    pub(super) cpu_util_system: Number,
    /// 1 at a sender that knows its retransmissions, 0 at one that does not, -1 at a receiver.
    pub(super) sender_has_retransmits: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) congestion_used: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server_output_text: Option<String>,
    /// None if it is more than there is room for.
    #[serde(default, deserialize_with = "printed::deserialize", skip_serializing_if = "Option::is_none")]
    pub(super) server_output_json: Option<serde_json::Value>,
    pub(super) streams: Vec<ExchangedStream>,
}

/// What one end measured of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ExchangedStream {
    pub(super) id: Number,
    pub(super) bytes: Number,
    /// -1 if it is not known.
    pub(super) retransmits: Number,
    /// Seconds.
    pub(super) jitter: Number,
    pub(super) errors: Number,
    #[serde(default)]
    pub(super) omitted_errors: Number,
    pub(super) packets: Number,
    #[serde(default)]
    pub(super) omitted_packets: Number,
    #[serde(default)]
    pub(super) start_time: Number,
    #[serde(default)]
    pub(super) end_time: Number,
}

impl Exchanged {
    pub(super) fn read(block: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(block).map_err(|error| WireError::Json(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_offers_arrives() {
        let parameters = Parameters {
            protocol: Protocol::Udp,
            streams: 3,
            direction: Direction::Both,
            block_bytes: Some(1000),
            amount: Amount::Blocks(7),
            rate_limit: Some(5_000_000),
            mss_bytes: Some(1200),
            window_bytes: Some(1 << 20),
            tos: 16,
            congestion: Some("reno".into()),
            has_wide_counters: true,
            title: Some("a title".into()),
            ..Parameters::default()
        };
        let text = serde_json::to_vec(&Offer::from(&parameters)).expect("JSON");
        let read = Offer::read(&text).expect("an offer").parameters(None).expect("parameters");
        assert_eq!(Offer::from(&read), Offer::from(&parameters));
        assert!(String::from_utf8_lossy(&text).contains("\"parallel\":3,"));
    }

    #[test]
    fn an_offer_of_iperf3_is_understood() {
        let text = br#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"reverse":true,
            "len":131072,"pacing_timer":1000,"client_version":"3.12","something_new":[1]}"#;
        let parameters = Offer::read(text).expect("an offer").parameters(None).expect("parameters");
        assert_eq!(parameters.amount, Amount::Time(Duration::from_secs(1)));
        assert_eq!(parameters.direction, Direction::Download);
        assert!(parameters.check().is_ok());
    }

    #[test]
    fn what_a_server_prints_is_kept_if_it_is_not_too_much() {
        let known = r#""cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":0,"streams":[]"#;
        let read = |output: &str| {
            let text = format!("{{{known},\"server_output_json\":{output}}}");
            Exchanged::read(text.as_bytes()).map(|read| read.server_output_json)
        };
        let output = r#"{"a":[1,-2,0.5,"b",true,null],"c":{}}"#;
        assert_eq!(read(output).expect("a block"), serde_json::from_str(output).ok());
        assert_eq!(read("null").expect("a block"), None);
        // Sixteen megabytes of this would take 600.
        let hostile = format!("[{}1]", "[[[]]],".repeat(printed::MOST_VALUES));
        assert_eq!(read(&hostile).expect("the rest of it counts"), None);
        assert!(read("[1,").is_err() && read(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn hostile_offers_are_refused() {
        for text in [
            "",
            "[]",
            "{\"parallel\":\"many\"}",
            "{\"parallel\":1e99}",
            "{\"parallel\":-1}",
            "{\"time\":1e30}",
            "{\"time\":-5}",
            "{\"parallel\":1,\"len\":1e12}",
            "{\"parallel\":1,\"udp\":true,\"len\":3}",
            "{\"parallel\":1,\"sctp\":true}",
            "{\"parallel\":1,\"window\":1e18}",
        ] {
            let read = Offer::read(text.as_bytes()).map_err(|error| error.to_string());
            let checked = read.and_then(|offer| offer.parameters(None)).and_then(|it| it.check());
            assert!(checked.is_err(), "{text}");
        }
    }
}
