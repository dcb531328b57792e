//! What people are told of the mistakes they make most: each message says what is wrong, where, and what to do.

use std::path::Path;
use std::time::SystemTime;

use pointsman::operator::check::{Style, check_files};
use pointsman::pure::config::MemoryFiles;

#[path = "support/said.rs"]
mod said;

use said::said_of;

#[test]
fn misspelt_limit() {
    insta::assert_snapshot!(said_of(r##"limits { header-timeot "3s"; body-max "1MiB" }"##));
}

#[test]
fn misspelt_property() {
    insta::assert_snapshot!(said_of(r##"rule pth="/img/{*rest}" use="origin""##));
}

#[test]
fn misspelt_pool() {
    insta::assert_snapshot!(said_of(r##"rule use="orign""##));
}

#[test]
fn misspelt_node() {
    insta::assert_snapshot!(said_of(r##"lsten "127.0.0.1:81""##));
}

#[test]
fn bare_number() {
    insta::assert_snapshot!(said_of(r##"limits { header-timeout 10 }"##));
}

#[test]
fn wrong_unit() {
    insta::assert_snapshot!(said_of(r##"limits { body-max "10MB" }"##));
}

#[test]
fn quoted_number() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1" weight="2" }"##));
}

#[test]
fn given_twice() {
    insta::assert_snapshot!(said_of(r##"rule path="/a" path="/b" use="origin""##));
}

#[test]
fn two_pools() {
    insta::assert_snapshot!(said_of(r##"pool "origin" { server "o1" "127.0.0.1:9001" }"##));
}

#[test]
fn two_servers() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; server "s" "127.0.0.1:2" }"##));
}

#[test]
fn weight_range() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1" weight=65536 }"##));
}

#[test]
fn empty_pool() {
    insta::assert_snapshot!(said_of(r##"pool "b" { scheduler "rr" }"##));
}

#[test]
fn no_port() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "10.0.0.1" }"##));
}

#[test]
fn host_name() {
    insta::assert_snapshot!(said_of(r##"listen "app.internal:8080""##));
}

#[test]
fn unquoted_address() {
    insta::assert_snapshot!(said_of(r##"listen 127.0.0.1:80"##));
}

#[test]
fn bare_true() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { request-id true }"##));
}

#[test]
fn text_switch() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { request-id "yes" }"##));
}

#[test]
fn protocol_without_tls() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { protocols "h2" }"##));
}

#[test]
fn proxy_protocol_for_h2c() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; upstream "h2c" proxy-protocol="v2"; }"##));
}

#[test]
fn tls_for_h2c() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; upstream "h2c" { tls { insecure #true; }; }; }"##
    ));
}

#[test]
fn key_of_a_scheduler_that_counts() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; scheduler "wrr" key="path" }"##));
}

#[test]
fn key_by_a_capture_that_is_missing() {
    insta::assert_snapshot!(said_of(r##"rule use="origin" key="$1""##));
}

#[test]
fn options_of_other_schedulers() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; scheduler "dh" mode="smooth" bound=150 }
pool "c" { server "s" "127.0.0.1:1"; scheduler "mh" { key-normalize { drop "a" } } }
pool "d" { server "s" "127.0.0.1:1"; scheduler "cbr" key="uri" { key-normalize } }"##
    ));
}

#[test]
fn connections_without_a_bound() {
    insta::assert_snapshot!(said_of(r##"limits { connections-max "off" }"##));
}

#[test]
fn unknown_scheduler() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; scheduler "wlcc" }"##));
}

#[test]
fn later_setting() {
    insta::assert_snapshot!(said_of(r##"admin "unix:run/a.sock" token-file="tokens""##));
}

#[test]
fn admin_sockets() {
    insta::assert_snapshot!(said_of(r##"admin "127.0.0.1:9999""##));
    insta::assert_snapshot!(said_of(r##"admin "/run/admin.sock""##));
    insta::assert_snapshot!(said_of(
        r##"listen "unix:run/p.sock"
admin "unix:run/p.sock" { token-file "t"; tls }
admin "unix:run/q.sock""##
    ));
}

#[test]
fn no_action() {
    insta::assert_snapshot!(said_of(r##"rule path="/a""##));
}

#[test]
fn two_actions() {
    insta::assert_snapshot!(said_of(r##"rule path="/a" use="origin" respond=403"##));
}

#[test]
fn process_limit_in_listener() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { limits { drain-timeout "5s" } }"##));
}

#[test]
fn rule_limit() {
    insta::assert_snapshot!(said_of(r##"rule use="origin" { limits { idle-timeout "5s" } }"##));
}

#[test]
fn unclosed_block() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1""##));
}

#[test]
fn bad_escape() {
    insta::assert_snapshot!(said_of(r##"rule path-regex="^/\d+$" use="origin""##));
}

#[test]
fn bad_regex() {
    insta::assert_snapshot!(said_of(r##"rule path-regex="^/(a" use="origin""##));
}

#[test]
fn bad_path() {
    insta::assert_snapshot!(said_of(r##"rule path="img/{*rest}" use="origin""##));
}

#[test]
fn path_without_quotes() {
    insta::assert_snapshot!(said_of(r##"rule path=/img use="origin""##));
}

#[test]
fn unknown_capture() {
    insta::assert_snapshot!(said_of(r##"rule path="/u/{id}" use="origin" { rewrite "/users/{name}" }"##));
}

#[test]
fn capture_in_one_path() {
    insta::assert_snapshot!(said_of(r##"rule { split key="{id}" { use "origin" }; path "/u/{id}" "/me" }"##));
}

#[test]
fn no_group() {
    insta::assert_snapshot!(said_of(r##"rule path="/u" { split key="$1" { use "origin" } }"##));
}

#[test]
fn header_as_property() {
    insta::assert_snapshot!(said_of(r##"rule header="X-Canary" use="origin""##));
}

#[test]
fn framing_field() {
    insta::assert_snapshot!(said_of(r##"rule use="origin" { set-request-header "Content-Length" "0" }"##));
}

#[test]
fn bad_cidr() {
    insta::assert_snapshot!(said_of(r##"rule client="10.0.0.0/33" use="origin""##));
}

#[test]
fn host_with_port() {
    insta::assert_snapshot!(said_of(r##"rule host="a.test:8080" use="origin""##));
}

#[test]
fn split_zero() {
    insta::assert_snapshot!(said_of(r##"rule { split { use "origin" weight=0 } }"##));
}

#[test]
fn method_case() {
    insta::assert_snapshot!(said_of(r##"rule method="get" use="origin""##));
}

#[test]
fn redirect_status() {
    insta::assert_snapshot!(said_of(r##"rule redirect="https://a.test/" status=404"##));
}

#[test]
fn change_without_server() {
    insta::assert_snapshot!(said_of(r##"rule respond=404 { strip-prefix "/api" }"##));
}

#[test]
fn upgrade_h2c() {
    insta::assert_snapshot!(said_of(r##"rule use="origin" upgrade="h2c""##));
}

#[test]
fn unknown_listener() {
    insta::assert_snapshot!(said_of(r##"rule listen="127.0.0.1:8081" use="origin""##));
}

#[test]
fn expect_nothing() {
    insta::assert_snapshot!(said_of(r##"expect "GET http://a.test/""##));
}

#[test]
fn expect_no_url() {
    insta::assert_snapshot!(said_of(r##"expect "/img/x.png" use="origin""##));
}

#[test]
fn missing_argument() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" }"##));
}

#[test]
fn extra_argument() {
    insta::assert_snapshot!(said_of(r##"rule "a" "b" use="origin""##));
}

#[test]
fn tls_without_key() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { tls { certificate "a.crt" } }"##));
}

#[test]
fn server_at_top() {
    insta::assert_snapshot!(said_of(r##"server "o2" "127.0.0.1:9001""##));
}

#[test]
fn nested_include() {
    insta::assert_snapshot!(said_of(r##"pool "b" { include "more.kdl" }"##));
}

#[test]
fn port_alone() {
    insta::assert_snapshot!(said_of(r##"listen "8081""##));
}

#[test]
fn type_annotation() {
    insta::assert_snapshot!(said_of(r##"(big)rule use="origin""##));
}

#[test]
fn property_without_equals() {
    insta::assert_snapshot!(said_of(r##"rule use "origin""##));
}

#[test]
fn duration_words() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; timeout connect="2 sec" }"##));
}

#[test]
fn retry_words() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; retry on="conect" }"##));
}

#[test]
fn redirect_no_url() {
    insta::assert_snapshot!(said_of(r##"rule redirect="a.test""##));
}

#[test]
fn redirect_open_host() {
    insta::assert_snapshot!(said_of(r##"rule path="/{x}" redirect="https://{x}/""##));
}

#[test]
fn rewrite_no_slash() {
    insta::assert_snapshot!(said_of(r##"rule path="/{x}" rewrite="v2/{x}" use="origin""##));
}

#[test]
fn open_brace() {
    insta::assert_snapshot!(said_of(r##"rule use="origin" { set-request-header "X" "a{b" }"##));
}

#[test]
fn strip_prefix_slash() {
    insta::assert_snapshot!(said_of(r##"rule strip-prefix="api/" use="origin""##));
}

#[test]
fn key_of_builtin() {
    insta::assert_snapshot!(said_of(r##"rule { split key="{host}" { use "origin" } }"##));
}

#[test]
fn misspelt_key() {
    insta::assert_snapshot!(said_of(r##"rule { split key="hots+path" { use "origin" } }"##));
}

#[test]
fn capture_twice() {
    insta::assert_snapshot!(said_of(r##"rule path="/{a}/{a}" use="origin""##));
}

#[test]
fn host_star() {
    insta::assert_snapshot!(said_of(r##"rule host="a.*.test" use="origin""##));
}

#[test]
fn media_type_parameters() {
    insta::assert_snapshot!(said_of(r##"rule content-type="text/html; charset=utf-8" use="origin""##));
}

#[test]
fn header_child_of_expect() {
    insta::assert_snapshot!(said_of(r##"expect "GET http://a.test/" use="origin" { header "X-A" }"##));
}

#[test]
fn unknown_rule() {
    insta::assert_snapshot!(said_of(r##"rule "images" use="origin"; expect "GET http://a.test/" rule="image""##));
}

#[test]
fn include_missing() {
    insta::assert_snapshot!(said_of(r##"include "more/site.kdl""##));
}

#[test]
fn include_itself() {
    insta::assert_snapshot!(said_of(r##"include "site.kdl""##));
}

#[test]
fn open_text() {
    insta::assert_snapshot!(said_of(r##"rule path="/img use="origin""##));
}

#[test]
fn empty_split() {
    insta::assert_snapshot!(said_of(r##"rule "s" { split key="client" { } }"##));
}

#[test]
fn unix_address() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "unix:" }"##));
}

#[test]
fn settings_of_unix_listeners_and_resolvers() {
    insta::assert_snapshot!(said_of(
        r##"listen "unix:a.sock" { tls { certificate "a.crt" key="a.key" }; mode "rw" }
listen "unix:b.sock" { trusted-proxies "10.0.0.0/8" }
listen "127.0.0.1:81" { trusted-proxies "unix"; mode "0660" }
resolver "dns.internal""##
    ));
}

#[test]
fn url_as_address() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "http://10.0.0.1:80/" }"##));
}

#[test]
fn unbracketed_v6() {
    insta::assert_snapshot!(said_of(r##"listen "::1:8080""##));
}

#[test]
fn misspelt_format() {
    insta::assert_snapshot!(said_of(r##"access-log "a.log" format="jsn""##));
}

#[test]
fn regex_too_large() {
    insta::assert_snapshot!(said_of(r##"rule path-regex="^/[a-z]{5000}[0-9]{5000}$" use="origin""##));
}

#[test]
fn everything_at_once_and_in_reading_order() {
    let files =
        MemoryFiles::one("rules/10-base.kdl", "listen \"127.0.0.1:8080\"\ninclude \"more/*.kdl\"\nrule use=\"b\"\n")
            .with("rules/more/pools.kdl", "pool \"a\" { server \"s\" \"nowhere\" }\npool \"a\" { }\nlimit { }\n")
            .with("rules/more/broken.kdl", "rule use=\"a\n")
            .with(
                "rules/20-more.kdl",
                "limits { body-max \"1MiB\" }\nlimits { body-max \"2MiB\" }\nlisten \"127.0.0.1:8080\"\n",
            );
    let report = check_files(&files, Path::new("rules"), SystemTime::UNIX_EPOCH);
    insta::assert_snapshot!(report.render(Style::Plain));
}

#[test]
fn an_expectation_that_is_not_met() {
    let files = MemoryFiles::one(
        "site.kdl",
        r#"
listen "127.0.0.1:8080"
pool "images" { server "i1" "127.0.0.1:9000" }
pool "app" { server "a1" "127.0.0.1:9001" }
rule "images" path="/img/{*rest}" use="images" {
    method "GET" "HEAD"
    header "X-Site" "main"
}
rule "other" host="b.test" use="images"
rule "app" use="app"
expect "GET http://a.test/img/logo.png" use="images"
"#,
    );
    let report = check_files(&files, Path::new("site.kdl"), SystemTime::UNIX_EPOCH);
    insta::assert_snapshot!(report.render(Style::Plain));
}

#[test]
fn warnings_look_like_errors_and_are_none() {
    let files = MemoryFiles::one(
        "site.kdl",
        r#"
listen "*:8080"
listen "127.0.0.1:8080"
pool "images" { server "i1" "127.0.0.1:9000"; scheduler "rr" }
pool "app" { server "a1" "127.0.0.1:9001" }
rule path="/img/{*rest}" use="images"
rule "logo" path="/img/logo.png" use="images"
rule "wild" host="*.a.test" use="images"
rule "exact" use="images" {
    host "www.a.test" "b.test"
}
rule path-regex="^/about$" use="images"
"#,
    );
    let report = check_files(&files, Path::new("site.kdl"), SystemTime::UNIX_EPOCH);
    insta::assert_snapshot!(report.render(Style::Plain));
}

#[test]
fn bytes_without_unit() {
    insta::assert_snapshot!(said_of(r##"limits { body-max 1048576 }"##));
}

#[test]
fn equals_in_block() {
    insta::assert_snapshot!(said_of(
        r##"rule path="/a" {
    use="origin"
}"##
    ));
}

#[test]
fn equals_in_block_of_one_line() {
    insta::assert_snapshot!(said_of(r##"rule { path="/a"; use "origin" }"##));
}

#[test]
fn hash_comment() {
    insta::assert_snapshot!(said_of(
        r##"# a comment
rule use="origin" # another"##
    ));
}

#[test]
fn listener_of_a_port() {
    insta::assert_snapshot!(said_of(r##"listen 8082"##));
}

#[test]
fn server_of_a_port() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "a3" 9000 }"##));
}

#[test]
fn duration_without_quotes() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; timeout connect=2s }"##));
}

#[test]
fn range_without_quotes() {
    insta::assert_snapshot!(said_of(r##"rule client=10.0.0.0/8 use="origin""##));
}

#[test]
fn media_type_without_quotes() {
    insta::assert_snapshot!(said_of(
        r##"rule media-type=image/* use="origin"
rule respond=404"##
    ));
}

#[test]
fn proxy_protocol_without_trusted_proxies() {
    insta::assert_snapshot!(said_of(r##"listen "127.0.0.1:81" { proxy-protocol; via "off" }"##));
}
