//! What differs between a tunnel's file and the one before, in words.

use polypath_tunnel::Rule;

use super::super::interfaces::Interface;

/// Rules that came, went, or were written anew, each by its place in its own file.
pub(super) fn of_rules(before: &[Rule], after: &[Rule]) -> Vec<String> {
    let is_gone = |at: usize| before.get(at).is_some_and(|rule| !after.contains(rule));
    let is_new = |at: usize| after.get(at).is_some_and(|rule| !before.contains(rule));
    let mut told = Vec::new();
    for at in 0..before.len().max(after.len()) {
        match (is_gone(at), is_new(at)) {
            (true, true) => told.push(format!("rules[{at}] has changed")),
            (true, false) => told.push(format!("rules[{at}] of before is gone")),
            (false, true) => told.push(format!("rules[{at}] is new")),
            (false, false) => {}
        }
    }
    if told.is_empty() && before != after {
        told.push("the rules have another order".into());
    }
    told
}

/// Uplinks that are named now, are no more, or are for something else.
pub(super) fn of_uplinks(before: &[Interface], after: &[Interface]) -> Vec<String> {
    fn named<'a>(list: &'a [Interface], name: &str) -> Option<&'a Interface> {
        list.iter().find(|interface| interface.name == name)
    }
    let gone = before.iter().filter(|interface| named(after, &interface.name).is_none());
    let mut told: Vec<_> = gone.map(|gone| format!("uplink {} is named no more", gone.name)).collect();
    for uplink in after {
        match named(before, &uplink.name) {
            None => told.push(format!("uplink {} is new", uplink.name)),
            Some(other) if other != uplink => told.push(format!("uplink {} has changed", uplink.name)),
            Some(_) => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use polypath_tunnel::FlowPolicy;

    use super::super::super::interfaces::parse_interface;
    use super::*;

    #[test]
    fn rules_are_told_by_their_place() {
        let rule = |port| Rule { ports: Some(port..=port), ..Rule::all(FlowPolicy::Redundant) };
        let rules = |ports: &[u16]| ports.iter().map(|port| rule(*port)).collect::<Vec<_>>();
        let told = |before: &[u16], after: &[u16]| of_rules(&rules(before), &rules(after));
        assert!(told(&[1, 2], &[1, 2]).is_empty());
        assert_eq!(told(&[1], &[1, 2]), ["rules[1] is new"]);
        assert_eq!(told(&[1, 2], &[3, 1, 2]), ["rules[0] is new"]);
        assert_eq!(told(&[1, 2], &[2]), ["rules[0] of before is gone"]);
        assert_eq!(told(&[1, 2], &[1, 3]), ["rules[1] has changed"]);
        assert_eq!(told(&[1, 2], &[2, 1]), ["the rules have another order"]);
        assert_eq!(told(&[1, 1], &[1]), ["the rules have another order"]);
    }

    #[test]
    fn uplinks_are_told_by_their_name() {
        let uplinks =
            |words: &[&str]| words.iter().map(|text| parse_interface(text).unwrap()).collect::<Vec<_>>();
        let told = |before: &[&str], after: &[&str]| of_uplinks(&uplinks(before), &uplinks(after));
        assert!(told(&["eth0", "wwan0,backup"], &["wwan0,backup", "eth0"]).is_empty());
        let after = ["wwan0,metered", "wlan0"];
        let expected = ["uplink eth0 is named no more", "uplink wwan0 has changed", "uplink wlan0 is new"];
        assert_eq!(told(&["eth0", "wwan0,backup"], &after), expected);
    }
}
