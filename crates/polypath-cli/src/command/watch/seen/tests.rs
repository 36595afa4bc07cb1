use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

/// What is told after the next looks.
fn told(seen: &mut Seen, carrying: &[&str]) -> Option<String> {
    let carrying = names(carrying);
    assert!(seen.take_due(&carrying).is_empty(), "it waits for what may go with it");
    let mut lines = seen.take_due(&carrying);
    assert!(lines.len() < 2 && seen.take_due(&carrying).is_empty(), "{lines:?}");
    lines.pop()
}

#[test]
fn a_path_is_lost_once_and_comes_back_once() {
    let mut seen = Seen::default();
    assert_eq!(seen.handle_joined("wifi"), None);
    assert_eq!(seen.handle_joined("lte"), None);
    let end = |seen: &mut Seen, others: &[&str]| {
        seen.handle_ended("wifi", SubflowError::Local, &names(others), false);
        told(seen, others)
    };
    assert_eq!(end(&mut seen, &["lte", "wifi"]), None, "it has another subflow");
    assert_eq!(end(&mut seen, &["lte"]).as_deref(), Some("wifi is lost; lte goes on"));
    assert_eq!(end(&mut seen, &["lte"]), None);
    assert_eq!(seen.handle_joined("wifi").as_deref(), Some("wifi is back"));
    seen.handle_ended("wifi", SubflowError::Local, &names(&["lte"]), true);
    assert_eq!(seen.handle_joined("wifi"), None, "it was back before anybody knew");
    assert_eq!(told(&mut seen, &["lte", "wifi"]), None);
    seen.handle_ended("lte", SubflowError::TimedOut, &[], false);
    assert_eq!(told(&mut seen, &[]), None, "the end of all");
}

#[test]
fn an_interface_that_goes_down_under_its_subflows_is_lost_until_it_carries_again() {
    let (wifi, lte) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let mut seen = Seen::default();
    seen.names.extend([(wifi, "wifi".to_string()), (lte, "lte".to_string())]);
    seen.handle_joined("wifi");
    seen.handle_joined("lte");
    let running = |list: &[&str]| names(list).into_iter().collect::<BTreeSet<_>>();
    let both = running(&["wifi", "lte", "lo"]);
    let carry = |seen: &mut Seen, bytes| {
        let mut tally = Tally::default();
        tally.paths.push(polypath_stack::PathTally { own: lte, name: None, bytes });
        seen.handle_tally(&tally);
    };
    carry(&mut seen, 10);
    assert!(seen.handle_links(&both).is_empty() && seen.untold.is_empty());
    assert!(seen.handle_links(&running(&["wifi"])).is_empty());
    assert_eq!(told(&mut seen, &["wifi"]).as_deref(), Some("lte is lost; wifi goes on"));
    assert!(seen.handle_links(&running(&["wifi"])).is_empty() && seen.untold.is_empty());
    assert!(seen.handle_links(&both).is_empty(), "it is up, and carries nothing yet");
    carry(&mut seen, 11);
    assert_eq!(seen.handle_links(&both), ["lte is back"]);
    assert!(seen.handle_links(&both).is_empty() && seen.untold.is_empty());
}

#[test]
fn of_paths_that_are_lost_together_none_goes_on() {
    let mut seen = Seen::default();
    seen.handle_joined("wifi");
    seen.handle_joined("lte");
    seen.handle_ended("wifi", SubflowError::Local, &names(&["lte"]), true);
    seen.handle_ended("lte", SubflowError::Local, &[], true);
    assert!(seen.take_due(&[]).is_empty());
    assert_eq!(seen.take_due(&[]), ["wifi is lost", "lte is lost"]);
    for name in ["wifi", "lte"] {
        assert_eq!(seen.handle_joined(name), Some(format!("{name} is back")));
    }
    // Where both fall silent it may be the peer.
    seen.handle_stale("wifi", &names(&["lte"]));
    seen.handle_stale("lte", &[]);
    assert_eq!(told(&mut seen, &[]), None);
    assert_eq!(seen.handle_recovered("wifi"), None);
}

#[test]
fn a_path_that_stops_carrying_is_told_once_and_comes_back_once() {
    let mut seen = Seen::default();
    seen.handle_joined("wifi");
    seen.handle_joined("lte");
    let stale = |seen: &mut Seen, others: &[&str]| {
        seen.handle_stale("wifi", &names(others));
        told(seen, others)
    };
    assert_eq!(stale(&mut seen, &["lte", "wifi"]), None, "another subflow carries");
    assert_eq!(stale(&mut seen, &[]), None, "it may be the peer");
    let line = "wifi carries nothing; lte goes on";
    assert_eq!(stale(&mut seen, &["lte"]).as_deref(), Some(line));
    assert_eq!(stale(&mut seen, &["lte"]), None);
    assert_eq!(seen.handle_recovered("wifi").as_deref(), Some("wifi is back"));
    assert_eq!(seen.handle_recovered("wifi"), None);
    // One that ends afterwards is told no second time.
    assert_eq!(stale(&mut seen, &["lte"]).as_deref(), Some(line));
    seen.handle_ended("wifi", SubflowError::TimedOut, &names(&["lte"]), false);
    assert_eq!(told(&mut seen, &["lte"]), None);
    assert_eq!(seen.handle_joined("wifi").as_deref(), Some("wifi is back"));
    assert_eq!(seen.handle_joined("wifi"), None);
}

#[test]
fn a_budget_that_is_used_up_is_told_once() {
    let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let mut seen = Seen::default();
    seen.names.extend([(one, "lte".to_string()), (other, "dsl".to_string())]);
    let budget = |name: &str, is_hard| Budget { name: name.into(), bytes: 10_000_000, is_hard };
    let asked = |only: &[&str]| Asked {
        only: names(only),
        budgets: vec![budget("lte", true), budget("dsl", false)],
        ..Asked::default()
    };
    let budgets = asked(&["lte", "dsl"]);
    let used = |lte, dsl| move |own| if own == one { lte } else { dsl };
    assert!(seen.note_budgets(&budgets, used(9_999_999, 0), true).is_empty());
    let (mut alone, seen_before) = (seen.clone(), seen.clone());
    let told = seen.note_budgets(&budgets, used(10_000_000, 0), true);
    assert_eq!(told, ["lte has used its budget of 10 MB and is left out"]);
    let told = seen.note_budgets(&budgets, used(10_000_000, 11_000_000), true);
    assert_eq!(told, ["dsl has used its budget of 10 MB and is a backup from now on"]);
    assert!(seen.note_budgets(&budgets, used(12_000_000, 12_000_000), true).is_empty());
    alone.handle_joined("lte");
    alone.handle_ended("lte", SubflowError::Local, &[], true);
    assert!(alone.take_due(&[]).is_empty());
    let told = alone.note_budgets(&budgets, used(10_000_000, 0), false);
    let end = "is left out; no other is there: what is open ends in a minute, unless one comes";
    assert_eq!(told, [format!("lte has used its budget of 10 MB and {end}")]);
    assert!(alone.take_due(&[]).is_empty(), "its end is no other news");
    assert!(!alone.is_all_spent(&budgets), "the other one may come");
    let mut only = seen_before;
    let told = only.note_budgets(&asked(&["lte"]), used(10_000_000, 0), false);
    assert!(told.len() == 1 && told[0].contains("what is open ends now"), "{told:?}");
    assert!(only.is_all_spent(&asked(&["lte"])));
}

#[test]
fn what_never_came_to_be_has_a_cause() {
    let mut seen = Seen::default();
    for (error, cause) in [
        (SubflowError::JoinStripped, "lte: something on the way strips options of Multipath TCP"),
        (SubflowError::Reset(None), "lte: its subflow was refused"),
        (SubflowError::TimedOut, "lte: its subflow was never answered"),
    ] {
        seen.handle_ended("lte", error, &names(&["wifi"]), false);
        assert_eq!(seen.failed().as_deref(), Some(cause));
    }
    seen.handle_joined("lte");
    assert_eq!(seen.failed(), None);
    seen.joining.extend(names(&["lte", "dsl"]));
    assert_eq!(seen.failed().as_deref(), Some("dsl: its subflow was not answered in time"));
}

#[test]
fn a_path_is_in_use_throughout_if_it_carries_all_the_time() {
    let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let mut seen = Seen::default();
    assert!(seen.was_used_throughout(&[one]), "too short to tell");
    let mut bytes = [0, 0];
    for look in 0..20_u64 {
        // The other one comes after a while, and nothing at all moves at some looks.
        bytes[0] += look % 3;
        bytes[1] += if look > 6 { look % 3 } else { 0 };
        let mut tally = Tally::default();
        for (own, bytes) in [one, other].into_iter().zip(bytes) {
            tally.paths.push(polypath_stack::PathTally { own, name: None, bytes });
        }
        seen.handle_tally(&tally);
    }
    assert!(seen.was_used_throughout(&[one]) && seen.was_used_throughout(&[other, one]));
    assert!(!seen.was_used_throughout(&[other]));
    // Where all were lost at once, none carried while another did not.
    seen.handle_joined("lte");
    seen.handle_ended("lte", SubflowError::TimedOut, &[], false);
    assert!(!seen.was_used_throughout(&[one]));
}
