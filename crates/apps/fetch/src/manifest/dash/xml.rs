use std::borrow::Cow;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::manifest::error::{Error, quoted};

/// An element, with what is in it. Namespaces are passed over: names in an MPD are clear without.
#[derive(Debug)]
pub(super) struct Element<'a> {
    line: usize,
    name: Cow<'a, str>,
    attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    children: Vec<Element<'a>>,
    text: String,
}

/// Elements in one document.
const MAX_ELEMENTS: usize = 600_000;
/// Elements within elements.
const MAX_DEPTH: usize = 32;
/// Attributes of an element.
const MAX_ATTRIBUTES: usize = 64;

impl<'a> Element<'a> {
    /// Reads a document. A document type is refused: it could define entities.
    pub(super) fn parse(text: &'a str) -> Result<Self, Error> {
        let mut reader = Reader::from_str(text);
        let mut lines = Lines { text: text.as_bytes(), at: 0, line: 1 };
        let mut open: Vec<Element<'a>> = Vec::new();
        let mut count = 0;
        loop {
            let line = lines.at(reader.buffer_position());
            let event = reader.read_event();
            let event =
                event.map_err(|error| Error::malformed(line, format!("the XML is malformed: {error}")))?;
            let closed = match event {
                Event::Start(start) => {
                    open.push(Element::begin(&start, line)?);
                    None
                }
                Event::Empty(start) => Some(Element::begin(&start, line)?),
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    add_text(&mut open, &text.xml10_content());
                    None
                }
                Event::CData(text) => {
                    add_text(&mut open, &text.xml10_content());
                    None
                }
                Event::GeneralRef(reference) => {
                    let entity = format!("&{};", reference.xml10_content());
                    let text = quick_xml::escape::unescape(&entity)
                        .map_err(|_| Error::malformed(line, format!("{} is unknown", quoted(&entity))))?;
                    add_text(&mut open, &text);
                    None
                }
                Event::DocType(_) => return Err(Error::unsupported(line, "a document type (DOCTYPE)")),
                Event::Eof => return Err(Error::malformed(line, "the XML ends in the middle")),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => None,
            };
            count += usize::from(closed.is_some());
            if count > MAX_ELEMENTS || open.len() > MAX_DEPTH {
                return Err(Error::malformed(line, "the XML has too many elements, or too deep ones"));
            }
            if let Some(closed) = closed {
                match open.last_mut() {
                    Some(parent) => parent.children.push(closed),
                    None => return Ok(closed),
                }
            }
        }
    }

    fn begin(start: &BytesStart<'a>, line: usize) -> Result<Self, Error> {
        let mut attributes = Vec::new();
        // The check for doubles is quadratic.
        for attribute in start.attributes().with_checks(false) {
            let wrong = |error: &dyn std::fmt::Display| {
                Error::malformed(line, format!("an attribute is malformed: {error}"))
            };
            let attribute = attribute.map_err(|error| wrong(&error))?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(&error))?;
            attributes.push((local(attribute.key.as_ref()), Cow::Owned(value.into_owned())));
            if attributes.len() > MAX_ATTRIBUTES {
                return Err(Error::malformed(line, "an element has too many attributes"));
            }
        }
        let name = local(start.name().as_ref());
        Ok(Self { line, name, attributes, children: Vec::new(), text: String::new() })
    }

    /// Where it begins.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub(super) fn children<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Element<'a>> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub(super) fn child(&self, name: &str) -> Option<&Element<'a>> {
        self.children.iter().find(|child| child.name == name)
    }

    /// An attribute that is read by `read`, or an error that says what was expected.
    pub(super) fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.attribute(name) else { return Ok(None) };
        let wrong = || {
            let what = format!("{}@{name} is {}; expected {expected}", self.name, quoted(text));
            Error::malformed(self.line, what)
        };
        read(text.trim()).map(Some).ok_or_else(wrong)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        self.read(name, "a number, at least 0", |text| text.parse().ok())
    }
}

fn local(name: &str) -> Cow<'static, str> {
    Cow::Owned(name.rsplit(':').next().unwrap_or(name).to_owned())
}

fn add_text(open: &mut [Element<'_>], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// Counts lines up to a place that only goes forward.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn at(&mut self, place: u64) -> usize {
        let place = usize::try_from(place).unwrap_or(usize::MAX).min(self.text.len());
        self.line += self.text[self.at.min(place)..place].iter().filter(|byte| **byte == b'\n').count();
        self.at = place;
        self.line
    }
}
