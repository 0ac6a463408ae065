//! The formats of lines.

use super::{ONE, common, printed, row};

/// One request an hour for each of what the key is.
fn by(key: &str) -> String {
    ONE.replace("1/min", "1/h").replace("\"peer\"", key)
}

/// Whom a policy denies when each line comes twice.
fn denied(limits: &str, arguments: &[&str], lines: &[&str]) -> Vec<String> {
    let log: String = lines
        .iter()
        .map(|line| format!("{line}\n{line}\n"))
        .collect();
    let printed = printed(limits, arguments, &log);
    assert!(!printed.contains("not read"), "{printed}");
    let (_, named) = printed.split_once("denied most\n").unwrap();
    let named = named.lines().take_while(|line| line.starts_with("    "));
    let mut named: Vec<_> = named
        .map(|line| line.rsplit_once("  ").unwrap().0.trim().to_owned())
        .collect();
    named.sort();
    named
}

#[test]
fn the_common_and_the_combined_format_are_read() {
    let lines = [
        r#"203.0.113.1 - - [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 -"#,
        r#"203.0.113.2 - - [02/Mar/2026:09:00:01 +0000] "GET / HTTP/1.0" 200"#,
        r#"2001:db8::3 - - [02/Mar/2026:09:00:02 +0000] "GET / HTTP/2.0" 200 5 "-" "curl/8.5.0""#,
        r#"203.0.113.4 - - [02/Mar/2026:09:00:03 +0000] "GET /a?b=\"c\" HTTP/1.1" 200 5 "-" "a \"b\" \x22c\x5C" "198.51.100.7""#,
        r#"203.0.113.5 id first last [02/Mar/2026:09:00:04 +0000] "POST / HTTP/1.1" 200 5 "https://a.example/" "-""#,
    ];
    // Quotes cannot stand in a target, and no server would have answered it.
    let lines = lines.map(|line| line.replace(r#"b=\"c\""#, "b=c"));
    let clients = denied(&by("\"peer\""), &[], &lines.each_ref().map(|line| &**line));
    assert_eq!(
        clients,
        [
            "2001:db8::",
            "203.0.113.1",
            "203.0.113.2",
            "203.0.113.4",
            "203.0.113.5"
        ]
    );
    let shown = format!(
        "{}show_subject = true\non_missing_key = \"skip\"\n",
        by("\"header:user-agent\"")
    );
    let agents = denied(&shown, &[], &lines.each_ref().map(|line| &**line));
    assert_eq!(
        agents,
        [r#"user-agent: a \"b\" \"c\\"#, "user-agent: curl/8.5.0"]
    );
    let shown = format!(
        "{}show_subject = true\non_missing_key = \"skip\"\n",
        by("\"header:referer\"")
    );
    let pages = denied(&shown, &[], &lines.each_ref().map(|line| &**line));
    assert_eq!(pages, ["referer: https://a.example/"]);
    let users = format!("{}on_missing_key = \"skip\"\n", by("\"user\""));
    let users = denied(&users, &[], &lines.each_ref().map(|line| &**line));
    assert_eq!(users, ["first last"]);
}

#[test]
fn times_have_their_own_zones() {
    let at = |time: &str| format!(r#"203.0.113.9 - - [{time}] "GET / HTTP/1.1" 200 5"#) + "\n";
    // The same instant, and a minute later.
    let log = [
        at("02/Mar/2026:09:00:00 +0000"),
        at("02/Mar/2026:10:00:00 +0100"),
        at("02/Mar/2026:03:31:00 -0530"),
    ];
    let printed = printed(ONE, &[], &log.concat());
    assert_eq!(row(&printed, "client", "denied"), "1 (33.3 %)");
    assert!(
        printed.contains("from 2026-03-02 09:00:00 to 2026-03-02 09:01:00 UTC"),
        "{printed}"
    );
}

#[test]
fn json_lines_have_the_fields_of_nginx() {
    let line = |more: &str| {
        format!(
            r#"{{"time":"2026-03-02T09:00:00+00:00","remote_addr":"203.0.113.9","request_method":"GET","request_uri":"/a?b","status":"200"{more}}}"#
        )
    };
    let host = denied(
        &by("\"host\""),
        &[],
        &[&line(r#","host":"acme.example.com""#)],
    );
    assert_eq!(host, ["acme.example.com"]);
    let user = denied(&by("\"user\""), &[], &[&line(r#","remote_user":"alice""#)]);
    assert_eq!(user, ["alice"]);
    // What a client has sent is escaped.
    let user = denied(
        &by("\"user\""),
        &[],
        &[&line(r#","remote_user":"\u001b[31m""#)],
    );
    assert_eq!(user, [r"\u{1b}[31m"]);
    let peer = denied(&by("\"peer\""), &[], &[&line("")]);
    assert_eq!(peer, ["203.0.113.9"]);
}

#[test]
fn fields_of_json_lines_are_named_by_options() {
    let line = r#"{"ts":1772442000.25,"request":{"remote_ip":"203.0.113.9:4711","method":"POST","uri":"/login","headers":{"X-Tenant":["acme"]}},"user.id":7,"code":401,"authority":"a.example","rpc":16}"#;
    let options = [
        "time=ts",
        "address=request.remote_ip",
        "method=request.method",
        "path=request.uri",
        "status=code",
        "user=user.id",
        "host=authority",
        "grpc-status=rpc",
        "header:x-tenant=request.headers.X-Tenant",
    ];
    let options: Vec<_> = options
        .iter()
        .flat_map(|option| ["--field", option])
        .collect();
    for (key, subject) in [
        ("\"peer\"", "203.0.113.9"),
        ("\"user\"", "7"),
        ("\"host\"", "a.example"),
        ("\"header:x-tenant\"\nshow_subject = true", "x-tenant: acme"),
        (
            "\"peer\"\non = \"POST /login\"\ncount_status = 401",
            "203.0.113.9",
        ),
        ("\"peer\"\ncount_grpc_status = 16", "203.0.113.9"),
    ] {
        assert_eq!(denied(&by(key), &options, &[line]), [subject], "{key}");
    }
}

#[test]
fn times_of_json_lines_are_numbers_or_texts() {
    for time in [
        "1772442000.25",
        "1772442000250",
        "1772442000250.0",
        "1772442000250000",
        "1772442000250000000",
        "\"1772442000.250\"",
        "\"2026-03-02T09:00:00.250Z\"",
        "\"2026-03-02T10:00:00.25+01:00\"",
    ] {
        let line = format!(
            r#"{{"time":{time},"remote_addr":"203.0.113.9","request_method":"GET","request_uri":"/","status":200}}"#
        );
        // A request that comes 59.75 s later is denied for another quarter of a second.
        let log = line + "\n" + &common(60, "203.0.113.9", "GET /", 200);
        let printed = printed(ONE, &[], &log);
        let longest = row(&printed, "client", "longest denial");
        assert!(longest.starts_with("250 ms, "), "{time}: {printed}");
    }
}

#[test]
fn clients_stand_where_the_file_has_proxies_name_them() {
    let key = by("\"client-addr\"");
    let line = common(0, "203.0.113.9", "GET /", 200);
    let v6 = common(0, "2001:db8::9", "GET /", 200);
    for proxies in [
        "trusted_proxies = [\"10.0.0.0/8\"]",
        "trusted_proxies = []",
        "trusted_proxies = [\"10.0.0.0/8\"]\nclient_address = \"forwarded\"",
        "trusted_proxies = [\"10.0.0.0/8\"]\nclient_address = \"header:x-real-ip\"",
        "trusted_proxies = [\"0.0.0.0/0\", \"::/0\"]\ntrusted_hops = 3",
        "trusted_proxies = [\"fd00::/8\"]\nclient_address = \"forwarded\"\ntrusted_hops = 2",
    ] {
        let limits = format!("{proxies}\n{key}");
        let clients = denied(&limits, &[], &[line.trim_end(), v6.trim_end()]);
        assert_eq!(clients, ["2001:db8::", "203.0.113.9"], "{proxies}");
    }
    // The peer of all of them is the proxy.
    let limits = format!("trusted_proxies = [\"10.1.2.3\"]\n{}", by("\"peer\""));
    assert_eq!(
        denied(&limits, &[], &[line.trim_end(), v6.trim_end()]),
        ["10.1.2.3"]
    );
}

#[test]
fn a_header_that_the_log_has_names_the_client() {
    let limits = format!(
        "trusted_proxies = [\"10.0.0.0/8\"]\n{}",
        by("\"client-addr\"")
    );
    let line = r#"{"time":1772442000,"remote_addr":"10.0.0.1","request_method":"GET","request_uri":"/","status":200,"xff":"198.51.100.7, 203.0.113.9"}"#;
    let clients = denied(&limits, &["--field", "header:x-forwarded-for=xff"], &[line]);
    assert_eq!(clients, ["203.0.113.9"]);
}
