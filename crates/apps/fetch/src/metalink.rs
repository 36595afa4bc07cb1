//! Metalink 4 (RFC 5854): where files are, and what they are. No sockets; what is read is bounded, and no entity can be defined.

mod file;
mod state;
#[cfg(test)]
mod tests;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

pub use self::file::{Error, File, MAX_BYTES, Metalink};
use self::state::State;

/// Elements within elements.
const MAX_DEPTH: usize = 16;
/// Attributes of an element.
const MAX_ATTRIBUTES: usize = 32;
/// Bytes between two tags.
const MAX_TEXT_BYTES: usize = 8192;

/// Reads the files of a document.
pub fn parse(text: &str) -> Result<Metalink, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::TooLong(text.len()));
    }
    let mut reader = Reader::from_str(text);
    let mut state = State::default();
    // The names of the elements that are open, and the text in the innermost one.
    let (mut open, mut inner): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        let at = reader.buffer_position();
        let wrong = |what: String| Error::Malformed { at, what };
        match reader.read_event().map_err(|error| wrong(format!("the XML is malformed: {error}")))? {
            Event::Start(start) => {
                let attributes = attributes(&start).map_err(wrong)?;
                open.push(local(start.name().as_ref()));
                if open.len() > MAX_DEPTH {
                    return Err(wrong(format!("elements are more than {MAX_DEPTH} deep")));
                }
                inner.clear();
                state.begin(&open, &attributes).map_err(wrong)?;
            }
            Event::Empty(start) => {
                let attributes = attributes(&start).map_err(wrong)?;
                open.push(local(start.name().as_ref()));
                state.begin(&open, &attributes).map_err(wrong)?;
                state.end(&open, "")?;
                open.pop();
            }
            Event::End(_) => {
                state.end(&open, inner.trim())?;
                open.pop();
                inner.clear();
                if open.is_empty() {
                    return state.finish();
                }
            }
            Event::Text(text) => inner.push_str(&text.xml10_content()),
            Event::CData(text) => inner.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => {
                let entity = format!("&{};", reference.xml10_content());
                let unknown = |_| wrong(format!("{entity:.40} is unknown"));
                inner.push_str(&quick_xml::escape::unescape(&entity).map_err(unknown)?);
            }
            Event::DocType(_) => return Err(wrong("a document type (DOCTYPE) is not supported".into())),
            Event::Eof => return Err(wrong("the XML ends in the middle".into())),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
        if inner.len() > MAX_TEXT_BYTES {
            return Err(Error::Malformed {
                at,
                what: format!("a text has more than {MAX_TEXT_BYTES} bytes"),
            });
        }
    }
}

/// Names and values.
fn attributes(start: &BytesStart<'_>) -> Result<Vec<(String, String)>, String> {
    let mut attributes = Vec::new();
    // The check for doubles is quadratic.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| format!("an attribute is malformed: {error}"))?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value = value.map_err(|error| format!("an attribute is malformed: {error}"))?;
        attributes.push((local(attribute.key.as_ref()), value.into_owned()));
        if attributes.len() > MAX_ATTRIBUTES {
            return Err(format!("an element has more than {MAX_ATTRIBUTES} attributes"));
        }
    }
    Ok(attributes)
}

/// A name without its namespace: those of the format are clear without.
fn local(name: &str) -> String {
    name.rsplit(':').next().unwrap_or(name).to_owned()
}
