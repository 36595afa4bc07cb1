use proptest::prelude::*;

use super::*;

fn flow() -> FlowKey {
    FlowKey {
        client: "192.168.1.7".parse().unwrap(),
        user: Some("alice".into()),
        target: "www.example.org:443".parse().unwrap(),
        address: "198.51.100.1".parse().unwrap(),
        interface: Some("wwan0".into()),
        local: Some("10.0.0.2".parse().unwrap()),
        direction: Direction::Down,
    }
}

#[test]
fn each_part_of_a_selector_has_to_fit() {
    let any = Selector::default();
    assert!(any.fits(&flow()));
    for (fits, selector) in [
        (true, Selector { clients: vec!["192.168.0.0/16".parse().unwrap()], ..any.clone() }),
        (false, Selector { clients: vec!["192.168.2.0/24".parse().unwrap()], ..any.clone() }),
        (true, Selector { users: vec!["bob".into(), "alice".into()], ..any.clone() }),
        (false, Selector { users: vec!["bob".into()], ..any.clone() }),
        (true, Selector { hosts: vec![".example.org".parse().unwrap()], ..any.clone() }),
        (true, Selector { hosts: vec!["198.51.100.0/24".parse().unwrap()], ..any.clone() }),
        (false, Selector { hosts: vec!["example.org".parse().unwrap()], ..any.clone() }),
        (true, Selector { ports: vec![443.into()], ..any.clone() }),
        (false, Selector { ports: vec![80.into()], ..any.clone() }),
        (true, Selector { paths: vec!["wwan0".parse().unwrap()], ..any.clone() }),
        (true, Selector { paths: vec!["eth0".parse().unwrap(), "10.0.0.2".parse().unwrap()], ..any.clone() }),
        (false, Selector { paths: vec!["wwan".parse().unwrap()], ..any.clone() }),
        (false, Selector { paths: vec!["10.0.1.0/24".parse().unwrap()], ..any.clone() }),
        (true, Selector { peers: vec!["198.51.100.0/24".parse().unwrap()], ..any.clone() }),
        (false, Selector { peers: vec!["198.51.100.2".parse().unwrap()], ..any.clone() }),
        (true, Selector { direction: Some(Direction::Down), ..any.clone() }),
        (false, Selector { direction: Some(Direction::Up), ..any.clone() }),
        (false, Selector { users: vec!["alice".into()], ports: vec![80.into()], ..any.clone() }),
    ] {
        assert_eq!(selector.fits(&flow()), fits, "{selector:?}");
        let is_of_path = selector.names_paths() || selector.direction.is_some();
        assert!(!fits || selector.fits_ends(&flow()), "{selector:?}");
        assert_eq!(selector.names_ends(), selector != any && !is_of_path, "{selector:?}");
    }
    let unknown = FlowKey { user: None, interface: None, local: None, ..flow() };
    assert!(!Selector { users: vec!["alice".into()], ..any.clone() }.fits(&unknown));
    assert!(
        !Selector { paths: vec!["wwan0".parse().unwrap(), "0.0.0.0/0".parse().unwrap()], ..any }
            .fits(&unknown)
    );
}

#[test]
fn a_path_is_told_by_both_its_ends() {
    let at = |text: &str| text.parse().unwrap();
    let fits =
        |selector: &Selector, interface, remote| selector.fits_path(interface, at("10.0.0.2"), at(remote));
    let lte = Selector { paths: vec!["wwan0".parse().unwrap()], ..Selector::default() };
    assert!(lte.names_paths() && fits(&lte, Some("wwan0"), "192.0.2.1") && !fits(&lte, None, "192.0.2.1"));
    let peers = Selector { peers: vec!["192.0.2.0/24".parse().unwrap()], ..Selector::default() };
    assert!(peers.names_paths() && fits(&peers, None, "192.0.2.1") && !fits(&peers, None, "192.0.3.1"));
    let both = Selector { paths: vec!["10.0.0.2".parse().unwrap()], ..peers };
    assert!(fits(&both, None, "192.0.2.1") && !fits(&both, None, "192.0.3.1"));
    assert!(!Selector::default().names_paths());
}

#[test]
fn hours_may_go_over_midnight() {
    let is_in = |hours: &str, hour, minute| {
        hours.parse::<Hours>().unwrap().contains(MinuteOfDay::new(hour, minute).unwrap())
    };
    for (hours, hour, minute, wanted) in [
        ("08:00-17:30", 8, 0, true),
        ("08:00-17:30", 17, 29, true),
        ("08:00-17:30", 17, 30, false),
        ("08:00-17:30", 7, 59, false),
        ("22:00-06:00", 23, 0, true),
        ("22:00-06:00", 0, 0, true),
        ("22:00-06:00", 5, 59, true),
        ("22:00-06:00", 6, 0, false),
        ("22:00-06:00", 21, 59, false),
        ("18:00-24:00", 23, 59, true),
        ("18:00-24:00", 0, 0, false),
    ] {
        assert_eq!(is_in(hours, hour, minute), wanted, "{hour}:{minute} in {hours}");
        assert_eq!(hours.parse::<Hours>().unwrap().to_string(), hours);
    }
    for text in [
        "",
        "22:00",
        "22-06",
        "22:00-22:00",
        "24:00-06:00",
        "22:60-06:00",
        "22:00-24:01",
        "2:00-06:00",
        "+2:00-06:00",
    ] {
        assert_eq!(text.parse::<Hours>(), Err(HoursError), "{text:?}");
    }
    assert_eq!(
        (MinuteOfDay::new(24, 0), MinuteOfDay::new(0, 60), MinuteOfDay::new(u16::MAX, 0)),
        (None, None, None)
    );
}

#[test]
fn a_path_is_an_interface_or_a_local_address() {
    for text in ["eth0", "wlp2s0.100", "10.0.0.2", "2001:db8::/32"] {
        assert_eq!(text.parse::<PathPattern>().unwrap().to_string(), text);
    }
    for text in ["", "sixteen_letters_", "a b", "eth0/1", "eth0:1"] {
        assert!(text.parse::<PathPattern>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text: String) {
        if let Ok(hours) = text.parse::<Hours>() {
            prop_assert_eq!(hours.to_string().parse(), Ok(hours));
        }
        if let Ok(path) = text.parse::<PathPattern>() {
            prop_assert_eq!(path.to_string().parse(), Ok(path));
        }
    }
}
