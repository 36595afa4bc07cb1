use bytes::Bytes;

/// Header fields, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    fields: Vec<(Bytes, Bytes)>,
}

impl Fields {
    pub(crate) fn new(fields: Vec<(Bytes, Bytes)>) -> Self {
        Self { fields }
    }

    /// Values of all fields of a name, whose case doesn't matter, without spaces around them.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it = move |(other, _): &&(Bytes, Bytes)| other.eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(is_it).map(|(_, value)| value.as_ref())
    }

    /// The value of a field that stands once; none if it is missing or stands several times.
    pub fn only<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        let mut values = self.all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// [`Self::only`], if it is ASCII text.
    pub fn text<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        std::str::from_utf8(self.only(name)?).ok().filter(|text| text.is_ascii())
    }

    /// Members of a list that may stand in several fields, such as `Connection`. Not for lists with quoted strings.
    pub fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let members = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Whether there is a field of that name.
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_in_any_case() {
        let pair = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
        let fields = Fields::new(vec![
            pair("Connection", "close, , Keep-Alive"),
            pair("ETag", "\"a\""),
            pair("connection", "x"),
        ]);
        assert_eq!(fields.text("etag"), Some("\"a\""));
        assert_eq!(fields.only("Connection"), None);
        assert_eq!(fields.members("CONNECTION").collect::<Vec<_>>(), [&b"close"[..], b"Keep-Alive", b"x"]);
        assert!(fields.has("eTag") && !fields.has("tag"));
        assert_eq!(fields.iter().count(), 3);
    }
}
