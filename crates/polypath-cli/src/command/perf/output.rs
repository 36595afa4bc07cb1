//! Where a measurement is reported, and how.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::perf::text::{Unit, Writer};
use crate::perf::{Progress, Report};
use serde::Serialize;
use serde_json::json;

use super::super::{Failure, harmless, harmless_json, open_regular, print_line};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Lines as they come.
    Text,
    /// One object at the end.
    Json,
    /// One object for each thing that happens, on a line of its own.
    JsonStream,
}

/// Where results go.
pub(super) struct Output {
    form: Form,
    unit: Unit,
    title: Option<String>,
    log: Option<File>,
    writer: Option<Writer>,
}

impl Output {
    pub(super) fn new(
        form: Form,
        unit: Unit,
        title: Option<&str>,
        log: Option<&Path>,
    ) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let file = open_regular(path, File::options().append(true).create(true));
            let expected = "expected a file that can be written";
            file.map_err(|error| Failure::input(format!("--logfile {}: {error}; {expected}", path.display())))
        };
        let log = log.map(open).transpose()?;
        Ok(Self { form, unit, title: title.map(harmless), log, writer: None })
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// A new measurement begins.
    pub(super) fn reset(&mut self) {
        self.writer = None;
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        match &self.log {
            None => print_line(text),
            Some(log) => {
                let mut log = log;
                let failed = |error| Failure::run(format!("the log file can't be written: {error}"));
                log.write_all(format!("{text}\n").as_bytes()).map_err(failed)
            }
        }
    }

    /// Lines for people.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        match &self.title {
            _ if self.form != Form::Text => Ok(()),
            None => self.write(text),
            Some(title) => {
                let lines: Vec<String> = text.split('\n').map(|line| format!("{title}:  {line}")).collect();
                self.write(&lines.join("\n"))
            }
        }
    }

    fn object(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
        self.write(&harmless_json(&text))
    }

    fn event(&self, name: &str, data: &impl Serialize) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Event<'a, T> {
            event: &'a str,
            data: T,
        }
        let text = serde_json::to_string(&Event { event: name, data }).map_err(Failure::run)?;
        self.write(&harmless_json(&text))
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        // A reader that has gone is noticed at the end.
        let _ = match (self.form, progress) {
            (Form::Json, _) => Ok(()),
            (Form::JsonStream, Progress::Started(start)) => self.event("start", start),
            (Form::JsonStream, Progress::Interval(interval)) => self.event("interval", interval),
            (Form::Text, Progress::Started(start)) => {
                let text = self.writer.insert(Writer::new(start, self.unit)).start(start);
                self.say(&text)
            }
            (Form::Text, Progress::Interval(interval)) => match &self.writer {
                Some(writer) => self.say(&writer.interval(interval)),
                None => Ok(()),
            },
        };
    }

    pub(super) fn finish(&self, report: &Report) -> Result<(), Failure> {
        match (self.form, &self.writer) {
            (Form::Json, _) => self.object(report),
            (Form::JsonStream, _) => {
                self.event("end", &report.end)?;
                if let Some(output) = &report.server_output_json {
                    self.event("server_output_json", output)?;
                }
                if let Some(output) = &report.server_output_text {
                    self.event("server_output_text", output)?;
                }
                report.error.as_ref().map_or(Ok(()), |error| self.event("error", error))
            }
            (Form::Text, Some(writer)) => {
                self.say(&writer.end(report))?;
                self.server_output(report)
            }
            (Form::Text, None) => Ok(()),
        }
    }

    fn server_output(&self, report: &Report) -> Result<(), Failure> {
        let text = match (&report.server_output_text, &report.server_output_json) {
            (Some(text), _) => text.clone(),
            (None, Some(value)) => serde_json::to_string_pretty(value).map_err(Failure::run)?,
            (None, None) => return Ok(()),
        };
        let lines: Vec<String> = text.trim_end().split('\n').map(harmless).collect();
        self.say(&format!("\nServer output:\n{}", lines.join("\n")))
    }

    /// Where scripts look for it. People find it on standard error.
    pub(super) fn fail(&self, message: &str) -> Result<(), Failure> {
        match self.form {
            Form::Text => self.log.as_ref().map_or(Ok(()), |_| self.say(&harmless(message))),
            Form::Json => self.object(&json!({ "error": message })),
            Form::JsonStream => self.event("error", &message),
        }
    }
}
