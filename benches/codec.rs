//! What the codec costs on the way of a request: heads in and out of a keep-alive connection, and chunked bodies.

#![expect(clippy::indexing_slicing, reason = "a bench may panic")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::pure::h1::body::{BodyDecoder, BodyLength, push_chunk_line};
use pointsman::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
use pointsman::pure::h1::response::{ResponseHead, parse_response_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 128 };

const SMALL: &[u8] = b"GET /128 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /static/app.3f2a.js?v=12 HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
    Content-Type: application/octet-stream\r\nContent-Length: 128\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
    Connection: keep-alive\r\nETag: \"65920080-80\"\r\nAccept-Ranges: bytes\r\n\r\n";

fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request head");
    for (name, input) in [("small", SMALL), ("browser", BROWSER)] {
        group.throughput(Throughput::Bytes(input.len() as u64));
        let mut head = RequestHead::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                assert_eq!(parse_request_head(black_box(input), LIMITS, &mut head), Ok(Parsed::Complete));
                black_box(&head);
            });
        });
    }
    let mut head = RequestHead::default();
    group.bench_function("browser, byte by byte", |bencher| {
        bencher.iter(|| {
            for end in 0..BROWSER.len() {
                assert_eq!(parse_request_head(&black_box(BROWSER)[..end], LIMITS, &mut head), Ok(Parsed::Partial));
            }
            assert_eq!(parse_request_head(black_box(BROWSER), LIMITS, &mut head), Ok(Parsed::Complete));
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("response head");
    group.throughput(Throughput::Bytes(ANSWER.len() as u64));
    let mut head = ResponseHead::default();
    group.bench_function("nginx", |bencher| {
        bencher.iter(|| {
            assert_eq!(parse_response_head(black_box(ANSWER), LIMITS, false, &mut head), Ok(Parsed::Complete));
            black_box(&head);
        });
    });
    group.finish();
}

/// A buffer of 16 KiB full of chunks of that size.
fn bodies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chunked body, 16 KiB");
    for size in [16, 256, 4096, 16_000] {
        let mut input = Vec::new();
        while input.len() + size <= 16 * 1024 {
            push_chunk_line(&mut input, size);
            input.resize(input.len() + size, b'x');
            input.extend_from_slice(b"\r\n");
        }
        input.extend_from_slice(b"0\r\n\r\n");
        group.throughput(Throughput::Bytes(input.len() as u64));
        group.bench_function(format!("chunks of {size}"), |bencher| {
            bencher.iter_batched_ref(
                || input.clone(),
                |buffer| {
                    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
                    assert!(decoder.decode(black_box(buffer)).is_ok_and(|decoded| decoded.is_complete));
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, heads, bodies);
criterion_main!(benches);
