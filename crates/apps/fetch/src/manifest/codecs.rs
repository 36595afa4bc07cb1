//! What the codecs parameter tells (RFC 6381): which kind of content it is, and how many players can show it.

/// Whether one of the codecs is for pictures.
pub(super) fn has_video(codecs: &str) -> bool {
    codecs.split(',').any(|codec| {
        let family = family(codec);
        ["avc", "hev", "hvc", "dvh", "dva", "vp0", "vp8", "vp9", "av01", "mp4v", "vvc", "vvi", "evc"]
            .iter()
            .any(|known| family.starts_with(known))
    })
}

/// What a codec is called before its profile: decoders either have it or not.
pub(super) fn family(codec: &str) -> &str {
    let codec = codec.trim();
    // avc1 and avc3, hvc1 and hev1 differ in where the parameter sets are.
    match codec.split('.').next().unwrap_or(codec) {
        "avc3" => "avc1",
        "hev1" => "hvc1",
        other => other,
    }
}

/// The families of all codecs that are for pictures, or of all others.
pub(super) fn families(codecs: &str, of_video: bool) -> Vec<&str> {
    let mut families: Vec<&str> =
        codecs.split(',').filter(|codec| has_video(codec) == of_video).map(family).collect();
    families.sort_unstable();
    families.dedup();
    families
}

/// A smaller number for what more players have.
pub(super) fn rank(families: &[&str]) -> usize {
    const KNOWN: [&str; 8] = ["avc1", "mp4a", "hvc1", "vp09", "av01", "ac-3", "ec-3", "Opus"];
    let rank = |family: &&str| KNOWN.iter().position(|known| known == family).unwrap_or(KNOWN.len());
    families.iter().map(rank).max().unwrap_or(0)
}
