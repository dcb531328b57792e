//! The media type of what a request asks for, from what it says before any server has answered.
//!
//! Four sources, in this order: the extension of the path's last segment, Sec-Fetch-Dest (W3C Fetch Metadata), the most
//! preferred type of Accept (RFC 9110 12.5.1), and the type that this host and path last answered with. It refuses to look
//! at the request's own Content-Type: that is the type of what is sent, not of what is asked for.

use std::borrow::Cow;

use super::RequestView;
use super::parts::{accepted, essence};
use crate::pure::head::Known;

/// Which source told the media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaTypeSource {
    /// The extension of the path.
    Extension,
    /// Sec-Fetch-Dest.
    FetchDestination,
    /// Accept.
    Accept,
    /// What this host and path last answered with.
    Learned,
}

impl MediaTypeSource {
    /// Its name in explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extension => "the path's extension",
            Self::FetchDestination => "Sec-Fetch-Dest",
            Self::Accept => "Accept",
            Self::Learned => "what this path last answered with",
        }
    }
}

/// The media type, or the range such as `image/*`, of what is asked for, in lower case, and who says so.
pub fn media_type_of<'a>(view: &RequestView<'a>) -> Option<(Cow<'a, str>, MediaTypeSource)> {
    if let Some(found) = extension_of(view.path).and_then(media_type_of_extension) {
        return Some((Cow::Borrowed(found), MediaTypeSource::Extension));
    }
    if let Some(found) = view.fields.known(Known::SecFetchDest).find_map(media_range_of_destination) {
        return Some((Cow::Borrowed(found), MediaTypeSource::FetchDestination));
    }
    if let Some(found) = preferred(view) {
        return Some((lower_case(found), MediaTypeSource::Accept));
    }
    view.learned_media_type.map(|found| (lower_case(found), MediaTypeSource::Learned))
}

/// The media type of a Content-Type field's value: `type/subtype` without parameters, as sent. `None` for what is none.
pub fn media_type_of_field(value: &[u8]) -> Option<&str> {
    essence(value).filter(|text| !text.contains('*'))
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The range of Accept with the highest weight, `*/*` left out. Of equal ones a whole type comes before `type/*`, then the
/// first.
fn preferred<'a>(view: &RequestView<'a>) -> Option<&'a str> {
    let mut best = None;
    for range in accepted(view.fields).filter(|range| range.quality > 0 && range.range != "*/*") {
        let rank = (range.quality, !range.range.ends_with("/*"));
        if best.is_none_or(|(best_rank, _)| rank > best_rank) {
            best = Some((rank, range.range));
        }
    }
    best.map(|(_, range)| range)
}

/// What follows the last dot of the last segment, where something precedes the dot.
pub fn extension_of(path: &str) -> Option<&str> {
    let segment = path.rsplit('/').next()?;
    let (stem, extension) = segment.rsplit_once('.')?;
    (!stem.is_empty() && !extension.is_empty()).then_some(extension)
}

fn media_range_of_destination(value: &[u8]) -> Option<&'static str> {
    Some(match value {
        b"image" => "image/*",
        b"style" => "text/css",
        b"script" | b"worker" | b"sharedworker" | b"serviceworker" | b"audioworklet" | b"paintworklet" => {
            "text/javascript"
        }
        b"font" => "font/*",
        b"audio" => "audio/*",
        b"video" => "video/*",
        b"track" => "text/vtt",
        b"document" | b"iframe" | b"frame" => "text/html",
        b"manifest" => "application/manifest+json",
        b"json" => "application/json",
        b"xslt" => "application/xslt+xml",
        // `empty` (scripts' own fetches), `embed`, `object` and what is yet to come say nothing of a type.
        _ => return None,
    })
}

/// The media type of a file name's extension, in any case.
pub fn media_type_of_extension(extension: &str) -> Option<&'static str> {
    let mut lower = [0_u8; LONGEST_EXTENSION];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension.as_bytes());
    lower.make_ascii_lowercase();
    let found = EXTENSIONS.binary_search_by(|(name, _)| name.as_bytes().cmp(lower)).ok()?;
    EXTENSIONS.get(found).map(|(_, media_type)| *media_type)
}

/// Bytes of the longest extension in the table.
const LONGEST_EXTENSION: usize = 11;

/// Extensions in order, and the types that the IANA registry or, where it has none, common servers give them.
const EXTENSIONS: &[(&str, &str)] = &[
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("cur", "image/x-icon"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dtd", "application/xml-dtd"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar"),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("jfif", "image/jpeg"),
    ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("less", "text/less"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/x-m4v"),
    ("map", "application/json"),
    ("md", "text/markdown"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("ndjson", "application/x-ndjson"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("php", "text/html"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-rpm"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("scss", "text/x-scss"),
    ("sh", "application/x-sh"),
    ("shtml", "text/html"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("swf", "application/vnd.adobe.flash.movie"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain"),
    ("vcf", "text/vcard"),
    ("vtt", "text/vtt"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wma", "audio/x-ms-wma"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xsl", "application/xslt+xml"),
    ("xslt", "application/xslt+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rule::find::tests::Head;

    #[test]
    fn the_table_is_in_order_and_its_longest_extension_fits() {
        assert!(EXTENSIONS.is_sorted_by(|(one, _), (other, _)| one < other));
        assert_eq!(EXTENSIONS.iter().map(|(name, _)| name.len()).max(), Some(LONGEST_EXTENSION));
        for (name, media_type) in EXTENSIONS {
            assert_eq!(media_type_of_extension(&name.to_uppercase()), Some(*media_type));
            assert!(super::super::parts::essence(media_type.as_bytes()).is_some());
        }
        assert_eq!(media_type_of_extension("webmanifestx"), None);
        assert_eq!(media_type_of_extension(""), None);
    }

    #[test]
    fn an_extension_wants_a_name_before_it() {
        assert_eq!(extension_of("/a/b.tar.gz"), Some("gz"));
        assert_eq!(extension_of("/a.png/b"), None);
        assert_eq!(extension_of("/.jpg"), None);
        assert_eq!(extension_of("/a."), None);
        assert_eq!(extension_of("*"), None);
    }

    fn asked(path: &str, fields: &[(&str, &str)], learned: Option<&str>) -> Option<(String, MediaTypeSource)> {
        let head = Head::new(fields);
        let mut view = head.view("GET", "a.test", path);
        view.learned_media_type = learned;
        media_type_of(&view).map(|(media_type, source)| (media_type.into_owned(), source))
    }

    #[test]
    fn the_sources_speak_in_their_order() {
        use MediaTypeSource::*;
        let all = [("Sec-Fetch-Dest", "script"), ("Accept", "text/csv")];
        let learned = Some("Image/PNG");
        let says = |media_type: &str, source| Some((media_type.to_owned(), source));
        assert_eq!(asked("/a.CSS", &all, learned), says("text/css", Extension));
        assert_eq!(asked("/a.unknown", &all, learned), says("text/javascript", FetchDestination));
        assert_eq!(
            asked("/a", &[("sec-fetch-dest", "empty"), ("accept", "Text/CSV")], learned),
            says("text/csv", Accept)
        );
        assert_eq!(asked("/a", &[("Accept", "*/*")], learned), says("image/png", Learned));
        assert_eq!(asked("/a", &[], None), None);
    }

    #[test]
    fn accept_gives_its_most_preferred_type() {
        let accept = |text: &str| asked("/a", &[("Accept", text)], None).map(|(media_type, _)| media_type);
        assert_eq!(accept("*/*, image/*, image/webp").as_deref(), Some("image/webp"));
        assert_eq!(accept("text/a;q=0.5, text/b;q=0.9, */*").as_deref(), Some("text/b"));
        assert_eq!(accept("text/a;q=0, image/*;q=0.1").as_deref(), Some("image/*"));
        assert_eq!(accept("text/a;q=0").as_deref(), None);
        assert_eq!(accept("*/*;q=0.8, application/json, text/plain").as_deref(), Some("application/json"));
    }
}
