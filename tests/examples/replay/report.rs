//! What is printed for each policy.

use super::{ONE, committed, common, file, printed, refused, row, run};

/// Four requests of one client and two of another in one minute, and one an hour later.
fn log() -> String {
    let mut log = String::new();
    for secs in [0, 10, 20, 30] {
        log += &common(secs, "203.0.113.9", "GET /", 200);
    }
    for secs in [40, 50] {
        log += &common(secs, "2001:db8::7", "GET /", 200);
    }
    log + &common(3_600, "203.0.113.9", "GET /", 200)
}

#[test]
fn a_policy_has_its_requests_denials_and_subjects() {
    let printed = printed(ONE, &[], &log());
    for (label, expected) in [
        ("limit", "1 in each window of 1 min"),
        ("mode", "enforced"),
        ("requests", "7"),
        ("denied", "4 (57.1 %)"),
        ("subjects denied", "2"),
        (
            "longest denial",
            "50 s, of 203.0.113.9 at 2026-03-02 09:00:10",
        ),
        ("203.0.113.9", "3"),
        ("2001:db8::", "1"),
        ("2026-03-02 09:00", "4 of 6"),
    ] {
        assert_eq!(row(&printed, "client", label), expected, "{printed}");
    }
    assert!(
        printed.contains("\nclient: by client address, on every request\n"),
        "{printed}"
    );
    assert!(
        printed.contains(": 4 (57.1 %) of 7 requests denied\n"),
        "{printed}"
    );
    // Nobody was denied in that hour.
    assert!(!printed.contains("2026-03-02 10:00  "), "{printed}");
}

#[test]
fn the_ten_most_denied_are_named_in_order() {
    let mut log = String::new();
    for client in 1..=12 {
        for second in 0..=client {
            log += &common(second, &format!("203.0.113.{client}"), "GET /", 200);
        }
    }
    let printed = printed(ONE, &[], &log);
    let (_, named) = printed.split_once("denied most\n").unwrap();
    let named = named.lines().take_while(|line| line.starts_with("    "));
    let named: Vec<_> = named
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .collect();
    let expected = (3..=12)
        .rev()
        .map(|client| [format!("203.0.113.{client}"), client.to_string()]);
    assert_eq!(named, expected.collect::<Vec<_>>());
}

#[test]
fn a_policy_in_shadow_would_have_denied() {
    let limits = format!("{ONE}mode = \"shadow\"\n");
    let printed = printed(&limits, &[], &log());
    assert!(
        printed.contains(": 0 (0.0 %) of 7 requests denied\n"),
        "{printed}"
    );
    assert_eq!(
        row(&printed, "client", "mode"),
        "shadow: denied means would be denied"
    );
    assert_eq!(row(&printed, "client", "denied"), "4 (57.1 %)");
}

#[test]
fn what_the_log_cannot_tell_is_left_out_with_the_reason() {
    let limits = format!(
        "{ONE}\n[[policy]]\nname = \"places\"\nalgorithm = \"concurrency\"\nlimit = 1\nkey = \"peer\"\n\
         [[policy]]\nname = \"jobs\"\nalgorithm = \"gcra\"\nlimit = \"1/h\"\non = \"none\"\n\
         [[policy]]\nname = \"resting\"\nalgorithm = \"gcra\"\nlimit = \"1/h\"\nkey = \"peer\"\nmode = \"off\"\n"
    );
    let printed = printed(&limits, &[], &log());
    let why = row(&printed, "places", "mode");
    assert_eq!(why, "left out: the log does not say how long requests took");
    let why = row(&printed, "jobs", "mode");
    assert_eq!(
        why,
        "left out: handlers ask it, and the log does not say when"
    );
    assert_eq!(row(&printed, "resting", "mode"), "off");
    assert_eq!(row(&printed, "client", "denied"), "4 (57.1 %)");
}

#[test]
fn headers_are_hashed_unless_the_file_shows_them() {
    let policy = |name: &str, more: &str| {
        format!(
            "[[policy]]\nname = \"{name}\"\nalgorithm = \"fixed-window\"\nlimit = \"1/min\"\n\
             key = [\"peer\", \"header:user-agent\"]\n{more}\n"
        )
    };
    let limits = [
        "store = \"memory\"\n",
        &policy("hashed", ""),
        &policy("shown", "show_subject = true"),
    ];
    let line = common(0, "203.0.113.9", "GET /", 200);
    let line = format!("{} \"-\" \"secret\"\n", line.trim_end());
    let printed = printed(&limits.concat(), &[], &line.repeat(2));
    let (hashed, shown) = printed.split_once("\nshown: ").unwrap();
    assert!(!hashed.contains("secret"), "{printed}");
    assert!(
        shown.contains("203.0.113.9, user-agent: secret"),
        "{printed}"
    );
}

#[test]
fn delayed_requests_go_on_when_their_wait_is_over() {
    let limits = r#"
        store = "memory"
        [[policy]]
        name = "queue"
        algorithm = "leaky-bucket"
        limit = "1/s"
        capacity = 3
        key = "peer"
        [[policy]]
        name = "failures"
        algorithm = "fixed-window"
        limit = "1/min"
        key = "peer"
        count_status = 401
    "#;
    let mut log = String::new();
    for (secs, status) in [
        (0, 401),
        (0, 200),
        (60, 200),
        // Delayed until 61. It costs nothing in the end, but nobody knows that before.
        (60, 200),
        (60, 200),
        (62, 401),
        (63, 200),
    ] {
        log += &common(secs, "203.0.113.9", "GET /", status);
    }
    let printed = printed(limits, &[], &log);
    assert_eq!(
        row(&printed, "queue", "delayed"),
        "1, at most 1 s",
        "{printed}"
    );
    assert_eq!(
        row(&printed, "failures", "denied"),
        "3 (42.8 %)",
        "{printed}"
    );
}

#[test]
fn requests_that_are_not_decided_are_told() {
    let limits = ONE.replace("\"peer\"", "\"user\"");
    let printed = printed(&limits, &[], &common(0, "203.0.113.9", "GET /", 200));
    let told = "refused before they were counted by \"client\", misconfigured: 1\n";
    assert!(printed.contains(told), "{printed}");
}

#[test]
fn two_files_stand_side_by_side() {
    let other = ONE
        .replace("1/min", "2/min")
        .replace("\"client\"", "\"clients\"");
    // In shadow, so that it denies nothing to the first.
    let other = other.replace("store = \"memory\"", "") + "mode = \"shadow\"\n";
    let other = format!("{ONE}{other}");
    let other = file(other.replacen("1/min", "3/min", 1));
    let other = other.path().to_str().unwrap();
    let printed = printed(ONE, &["--compare", other], &log());
    let cells = |policy, label| {
        let cells: Vec<_> = row(&printed, policy, label).split("  ").collect();
        cells
            .into_iter()
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cells("client", "limit"),
        ["1 in each window of 1 min", "3 in each window of 1 min"]
    );
    assert_eq!(cells("client", "requests"), ["7", "7"]);
    assert_eq!(cells("client", "denied"), ["4 (57.1 %)", "1 (14.2 %)"]);
    assert_eq!(cells("client", "203.0.113.9"), ["3", "1"]);
    assert_eq!(cells("client", "2001:db8::"), ["1"]);
    assert_eq!(cells("client", "2026-03-02 09:00"), ["4 of 6", "1 of 6"]);
    assert_eq!(
        cells("clients", "mode"),
        ["not in this file", "shadow: denied means would be denied"]
    );
    assert_eq!(cells("clients", "denied"), ["2 (28.5 %)"]);
    assert!(printed.contains(&format!("\n{other}: ")), "{printed}");
}

#[test]
fn no_store_and_no_variable_is_needed() {
    let log = common(0, "203.0.113.9", "GET /", 200);
    for store in [
        "{ env = \"NOBODY_SETS_THIS\" }\nsecret = { env = \"NOR_THIS\" }",
        "\"rediss://127.0.0.1:1\"\nprefix = \"a\"\ntls = { ca_file = \"/nowhere\" }",
    ] {
        let limits = ONE.replace("\"memory\"", store);
        assert_eq!(row(&printed(&limits, &[], &log), "client", "requests"), "1");
    }
}

#[test]
fn errors_name_what_is_wrong() {
    let limits = |text: &str| refused(text, &[]);
    let wrong = limits(&ONE.replace("fixed-window", "fixed"));
    assert!(
        wrong.contains("client") && wrong.contains("algorithm"),
        "{wrong}"
    );
    assert!(limits("policy = [").contains("replay: "));
    for (arguments, says) in [
        (&["/nowhere/access.log"][..], "/nowhere/access.log: "),
        (
            &["--compare", "/nowhere/limits.toml"],
            "/nowhere/limits.toml: ",
        ),
        (
            &["--svg"],
            "--svg has no value, usage: replay --config <file>",
        ),
        (&["--svgs"], "\"--svgs\" is no option, usage: "),
        (&["--field", "time"], "expected such as --field time=ts"),
        (
            &["--field", "size=bytes"],
            "--field size: expected time, address",
        ),
    ] {
        let said = refused(ONE, arguments);
        assert!(
            said.starts_with("replay: ") && said.contains(says),
            "{said}"
        );
    }
}

#[test]
fn whole_seconds_are_told() {
    let told = "the log has whole seconds: ";
    assert!(printed(ONE, &[], &log()).contains(told));
    let json = r#"{"time":1772442000.5,"remote_addr":"203.0.113.9","request_method":"GET","request_uri":"/","status":200}"#;
    assert!(!printed(ONE, &[], json).contains(told));
}

#[test]
fn the_committed_limits_deny_some_of_the_committed_log() {
    let sample = std::fs::read(committed("sample.log")).unwrap();
    let limits = std::fs::read_to_string(committed("limits.toml")).unwrap();
    let output = run(&limits, &[], &sample);
    let printed = String::from_utf8(output.stdout).unwrap();
    for policy in ["client", "login", "search"] {
        assert!(
            !row(&printed, policy, "denied").starts_with("0 "),
            "{printed}"
        );
    }
}
