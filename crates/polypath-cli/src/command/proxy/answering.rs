//! A running proxy answers at its socket.

use std::sync::mpsc::{Sender as Reply, channel};
use std::sync::{Arc, Mutex, PoisonError};

use polypath_proxy::net::Proxy;
use tokio::sync::mpsc::UnboundedSender;

use super::super::control_socket::{Answer, Control};
use super::super::{Failure, complain};
use super::doubts::Doubts;
use super::figures::Figures;
use super::limits::Limits;
use super::report::ProxyReport;
use super::stage::Stage;
use super::status::PROXIES;
use super::surroundings::Machine;
use super::throttle::Change;

/// What is left to who runs the proxy, and where the answer goes.
#[derive(Debug)]
pub(super) enum Asked {
    Reload(Reply<Result<String, String>>),
    /// Answered with the seconds that it may take.
    Down(Reply<Result<String, String>>),
}

/// What can be answered at once.
pub(super) struct Answering {
    pub(super) proxy: Proxy,
    pub(super) limits: Arc<Limits>,
    pub(super) doubts: Arc<Doubts>,
    pub(super) machine: Arc<Machine>,
    pub(super) stage: Stage,
    pub(super) asked: UnboundedSender<Asked>,
}

/// Whoever asks has an answer. The thread goes on after that, but has nothing of the proxy any more, whose engine can end.
pub(super) struct Held(Arc<Mutex<Option<Arc<Answering>>>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The socket of a proxy, and what it is called there. It is removed with this.
pub(super) struct Offered {
    name: String,
    control: Arc<Control>,
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.control.path());
    }
}

/// The name that was asked for, or else `proxy`, or one with the number of the process where that runs already.
pub(super) fn offer(name: Option<&str>) -> Result<Option<Offered>, Failure> {
    let offer = |name: &str| {
        PROXIES.offer(name).map(|control| Offered { name: name.into(), control: Arc::new(control) })
    };
    if let Some(name) = name {
        return offer(name).map(Some).map_err(Failure::run);
    }
    match offer("proxy").or_else(|_| offer(&format!("proxy-{}", std::process::id()))) {
        Ok(offered) => Ok(Some(offered)),
        Err(error) => {
            complain(&format!("`polypath proxy status` will not find this proxy: {error}"));
            Ok(None)
        }
    }
}

impl Offered {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name, if the next process will have it, too.
    pub(super) fn lasting_name(&self) -> Option<&str> {
        let own = format!("proxy-{}", std::process::id());
        (self.name != own).then_some(&*self.name)
    }
}

impl Answering {
    /// On a thread of its own, as long as what is returned is held.
    pub(super) fn begin(self, offered: &Offered) -> Result<Held, Failure> {
        let (name, control) = (offered.name.clone(), offered.control.clone());
        let held = Arc::new(Mutex::new(Some(Arc::new(self))));
        let asked = held.clone();
        let answering = move || {
            control.serve(|word, rest| {
                let answering = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
                answering?.answer(&name, word, rest)
            });
        };
        let thread = std::thread::Builder::new().name("proxy-control".into());
        thread.spawn(answering).map_err(Failure::run)?;
        Ok(Held(held))
    }

    fn answer(&self, name: &str, word: &str, rest: &str) -> Option<Answer> {
        let said = match word {
            "status" => {
                let warnings = self.doubts.lines(&self.limits.all());
                let of = (&self.proxy, &*self.limits, warnings);
                let report = ProxyReport::new(name, self.stage.now(), of, &self.machine);
                serde_json::to_string(&report).map_err(|error| error.to_string())
            }
            "figures" => serde_json::to_string(&Figures::of(&self.proxy)).map_err(|error| error.to_string()),
            "set" => Change::read(rest)
                .map_err(|error| error.to_string())
                .and_then(|change| self.limits.set_one(&self.proxy, &self.doubts, &change)),
            "unset" => self.limits.unset(&self.proxy, rest),
            "reload" => self.leave(Asked::Reload),
            "down" => self.leave(Asked::Down),
            _ => return None,
        };
        Some(match said {
            Ok(text) => Answer::Text(text + "\n"),
            Err(error) => Answer::mistake(&error),
        })
    }

    fn leave(&self, what: impl FnOnce(Reply<Result<String, String>>) -> Asked) -> Result<String, String> {
        let (reply, answer) = channel();
        let gone = || "the proxy ends".to_string();
        self.asked.send(what(reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}
