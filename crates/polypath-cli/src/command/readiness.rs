//! What interfaces that were named are good for now, said before anything waits for them.

use polypath_system::{Link, Namespace, Netlink, SystemState};

use super::Failure;
use super::choice::and;

/// Looks at interfaces that were named; the lines that somebody should read, or why none of them will do.
pub(super) fn look(named: &[String]) -> Result<Vec<String>, Failure> {
    let looked = Namespace::current().and_then(|namespace| {
        namespace.run(|| {
            let state = SystemState::read(&Netlink::new()?)?;
            Ok(missing(&state, named))
        })?
    });
    let line = looked.map_err(Failure::run)?.map_err(Failure::Input)?;
    Ok(line.into_iter().collect())
}

/// Those that no interface has the name of, which is an error if all of them are such.
fn missing(state: &SystemState, named: &[String]) -> Result<Option<String>, String> {
    let missing: Vec<&str> =
        named.iter().map(String::as_str).filter(|name| state.link(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let is_others = |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath");
    let present: Vec<&str> = state.links.iter().filter(is_others).map(|link| link.name.as_str()).collect();
    let present = if present.is_empty() { "none".into() } else { present.join(", ") };
    let names = and(&missing);
    let is_one = missing.len() == 1;
    if missing.len() == named.len() {
        let what = if is_one { "is no interface" } else { "are no interfaces" };
        return Err(format!("there {what} {names}; present are: {present}"));
    }
    let (are, they, come) = if is_one { ("is", "it is", "comes") } else { ("are", "they are", "come") };
    let it = if is_one { "it" } else { "they" };
    Ok(Some(format!("{names} {are} not there now (present are: {present}); {they} used when {it} {come}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.into(),
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            kind: None,
            mtu_bytes: 1500,
            addresses: Vec::new(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn what_is_missing_is_said_and_an_error_if_nothing_else_was_named() {
        let links = vec![link(1, "lo"), link(2, "eth0"), link(3, "wlan0"), link(4, "polypath0")];
        let state = SystemState { links, ..SystemState::default() };
        let missing = |named: &[&str]| missing(&state, &names(named));
        assert_eq!(missing(&["eth0", "wlan0"]), Ok(None));
        assert_eq!(
            missing(&["eth0", "typo0"]).unwrap().as_deref(),
            Some("typo0 is not there now (present are: eth0, wlan0); it is used when it comes")
        );
        assert_eq!(
            missing(&["a", "eth0", "b"]).unwrap().as_deref(),
            Some("a and b are not there now (present are: eth0, wlan0); they are used when they come")
        );
        assert_eq!(missing(&["a"]).unwrap_err(), "there is no interface a; present are: eth0, wlan0");
        assert_eq!(
            missing(&["a", "b"]).unwrap_err(),
            "there are no interfaces a and b; present are: eth0, wlan0"
        );
    }
}
