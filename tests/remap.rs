//! `pointsman remap`: how many keys change their server, held against what the schedulers promise.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::path::Path;

use pointsman::operator::remap::{Asked, PoolRemap, Remap, compare};
use pointsman::pure::config::MemoryFiles;

const TEN: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const NINE: [u32; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 9];

fn file(servers: &[u32], scheduler: &str) -> String {
    let servers = servers.iter().map(|number| format!("server \"s{number}\" \"10.0.0.{number}:80\"\n"));
    format!("listen \"*:80\"\npool \"p\" {{ {} scheduler {scheduler} }}\nrule use=\"p\"\n", servers.collect::<String>())
}

fn compared(before: &str, after: &str, keys: Option<&[Asked]>) -> Remap {
    let files = MemoryFiles::one("a.kdl", before).with("b.kdl", after);
    let keys = keys.map(|keys| (Path::new("keys"), keys));
    compare(&files, Path::new("a.kdl"), Path::new("b.kdl"), keys).unwrap()
}

fn only_pool(remap: &Remap) -> &PoolRemap {
    assert_eq!(remap.pools.len(), 1, "{remap:?}");
    &remap.pools[0]
}

/// The share of keys that move when the ninth of ten servers is removed, and whether a restart changes nothing of that.
fn removing_one_of_ten(scheduler: &str) -> (f64, bool) {
    let remap = compared(&file(&TEN, scheduler), &file(&NINE, scheduler), None);
    let keys = only_pool(&remap).keys.unwrap();
    (keys.moved as f64 / keys.of as f64, keys.holds_after_restart)
}

#[test]
fn a_server_that_is_removed_moves_about_its_own_keys() {
    for (scheduler, forgets) in [
        ("\"mh\"", false),
        ("\"dh\"", false),
        ("\"sh\"", false),
        ("\"rendezvous\"", false),
        ("\"ch-bl\"", false),
        ("\"cbr\"", true),
        ("\"lblc\"", true),
        ("\"lblcr\"", true),
    ] {
        let (moved, holds) = removing_one_of_ten(scheduler);
        // Its tenth, and at most two in a hundred of the others'.
        assert!((0.09..0.13).contains(&moved), "{scheduler}: {moved}");
        assert_eq!(holds, !forgets, "{scheduler}");
    }
    // The kernel's buckets are dealt anew.
    assert!(removing_one_of_ten("\"dh\" mode=\"ipvs\"").0 > 0.5);
}

#[test]
fn what_moves_nothing_moves_nothing() {
    for scheduler in ["\"mh\"", "\"rendezvous\"", "\"cbr\"", "\"lblc\"", "\"lblcr\""] {
        let same = compared(&file(&TEN, scheduler), &file(&TEN, scheduler), None);
        assert_eq!(only_pool(&same).keys.unwrap().moved, 0, "{scheduler}");
        let mut turned = TEN;
        turned.reverse();
        let turned = compared(&file(&TEN, scheduler), &file(&turned, scheduler), None);
        assert_eq!(only_pool(&turned).keys.unwrap().moved, 0, "{scheduler}: the order in the file");
    }
}

#[test]
fn each_server_tells_how_many_keys_it_has() {
    for scheduler in ["\"mh\"", "\"cbr\"", "\"lblc\""] {
        let remap = compared(&file(&TEN, scheduler), &file(&[0, 1, 2, 3, 4, 5, 6, 7, 9, 10], scheduler), None);
        let pool = only_pool(&remap);
        let before = pool.servers.iter().filter_map(|server| server.before).sum::<u64>();
        let after = pool.servers.iter().filter_map(|server| server.after).sum::<u64>();
        assert_eq!((before, after), (10_000, 10_000), "{scheduler}");
        let of = |name: &str| pool.servers.iter().find(|server| server.name == name).unwrap();
        assert_eq!((of("s8").after, of("s10").before), (None, None), "{scheduler}");
        assert!(
            pool.servers.iter().filter_map(|server| server.before).all(|keys| (800..1_200).contains(&keys)),
            "{pool:?}"
        );
        let after: Vec<u64> = pool.servers.iter().filter_map(|server| server.after).collect();
        if scheduler == "\"mh\"" {
            assert!(after.iter().all(|keys| (800..1_200).contains(keys)), "{after:?}");
        } else {
            // What is remembered stays where it is: the new server gets its part of those that lost theirs.
            assert!(after.iter().filter(|keys| (1_000..1_200).contains(*keys)).count() == 9, "{scheduler}: {after:?}");
        }
    }
}

#[test]
fn keys_and_requests_of_a_file_go_their_way() {
    let pools = |images: &str, rules: &str| {
        format!(
            "listen \"*:80\"\npool \"images\" {{ {images} scheduler \"mh\" key=\"path\" }}\n\
             pool \"clients\" {{ server \"c1\" \"10.0.1.1:80\"; server \"c2\" \"10.0.1.2:80\"; scheduler \"sh\" }}\n\
             pool \"app\" {{ server \"a\" \"10.0.2.1:80\" }}\n{rules}"
        )
    };
    let both = "server \"i1\" \"10.0.0.1:80\"; server \"i2\" \"10.0.0.2:80\";";
    let one = "server \"i1\" \"10.0.0.1:80\";";
    let rules = "rule path=\"/img/{*rest}\" use=\"images\"\nrule path=\"/c/{*rest}\" use=\"clients\"\nrule path=\"/x\" respond=404\n\
                 rule use=\"app\"\n";
    let get = |url: &str| Asked::Request { method: "GET".to_owned(), url: url.to_owned() };
    let mut asked: Vec<Asked> = (0..100).map(|number| get(&format!("http://a.test/img/{number}?q={number}"))).collect();
    asked.extend((0..50).map(|number| get(&format!("http://a.test/img/{number}"))));
    asked.extend([get("http://a.test/x"), get("http://a.test/"), get("http://a.test/c/1")]);
    let remap = compared(&pools(both, rules), &pools(one, rules), Some(&asked));
    let keys = |remap: &Remap, name: &str| remap.pools.iter().find(|pool| pool.name == name).unwrap().keys;
    let images = keys(&remap, "images").unwrap();
    assert_eq!((images.of, images.elsewhere, remap.requests_without_pool), (100, 0, 1), "each key once");
    assert!((30..70).contains(&images.moved), "the keys of i2: {images:?}");
    assert_eq!(
        keys(&remap, "clients").unwrap(),
        pointsman::operator::remap::MovedOf { of: 1, moved: 0, elsewhere: 0, holds_after_restart: true }
    );
    assert_eq!(keys(&remap, "app"), None);
    // Requests that go elsewhere.
    let other = rules.replace("path=\"/img/{*rest}\" use=\"images\"", "path=\"/img/{*rest}\" use=\"app\"");
    let remap = compared(&pools(both, rules), &pools(both, &other), Some(&asked));
    let images = keys(&remap, "images").unwrap();
    assert_eq!((images.of, images.moved, images.elsewhere), (100, 100, 100));
    // Bare keys are asked of every pool that goes by such keys: a path is no address.
    let asked: Vec<Asked> = ["/img/1", "/img/2", "192.0.2.1"].map(|text| Asked::Key(text.to_owned())).to_vec();
    let remap = compared(&pools(both, rules), &pools(both, rules), Some(&asked));
    assert_eq!((keys(&remap, "images").unwrap().of, keys(&remap, "clients").unwrap().of), (3, 1));
    assert_eq!(remap.pools[1].without_key, 2);
}

#[test]
fn what_people_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let rest = "pool \"web\" { server \"w\" \"10.0.1.1:80\" }\n";
    write("a.kdl", &format!("{}{rest}pool \"old\" {{ server \"o\" \"10.0.1.2:80\" }}\n", file(&TEN, "\"mh\"")));
    write(
        "b.kdl",
        &format!("{}{rest}pool \"new\" {{ server \"n\" \"10.0.1.3:80\"; scheduler \"dh\" }}\n", file(&NINE, "\"mh\"")),
    );
    write("wrong", "http:///x\n");
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .arg("remap")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    insta::assert_snapshot!(run(&["a.kdl", "b.kdl"]).1, @r#"
    pool `p`: mh by path
      1006 of 10000 keys, spread evenly, change their server, 10.1 %
      server  before  after
      s0        1001   1104
      s1         973   1086
      s2        1001   1115
      s3        1016   1133
      s4        1041   1146
      s5         952   1053
      s6        1015   1134
      s7         985   1097
      s8         986   gone
      s9        1030   1132
    pool `web`: wrr, which goes by no key
      nothing to compare: no key says which server gets a request
    pool `old`: removed (wrr, which goes by no key)
    pool `new`: new (dh by path)
    "#);
    let (code, told, _) = run(&["a.kdl", "b.kdl", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (code, &told["pools"][0]["change"], &told["pools"][3]["change"]),
        (Some(0), &"kept".into(), &"new".into())
    );
    assert_eq!((&told["keys_file"], &told["pools"][0]["keys"]["of"]), (&serde_json::Value::Null, &10_000.into()));
    for (arguments, code, part) in [
        (&["a.kdl", "none.kdl"][..], 1, "none.kdl"),
        (&["a.kdl", "b.kdl", "--keys", "none"], 1, "can't read the keys of none"),
        (&["a.kdl", "b.kdl", "--keys", "wrong"], 1, "wrong:1: `http:///x`: the URL has no host"),
        (&["a.kdl"], 2, "FILE_B"),
    ] {
        let (found, _, said) = run(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    let (_, told, _) = run(&["a.kdl", "b.kdl", "--keys", "wrong", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["errors"][0]["place"], "wrong:1");
}
